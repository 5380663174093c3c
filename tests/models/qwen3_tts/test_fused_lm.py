"""The fused steps say what the plain ones say: on a CPU in Triton's interpreter, float32.

On a GPU products of float32 are rounded, so that codes may differ: there a row says the same alone
as among others, and a replay the same as eager. Errors of logits: `benchmarks/lm_kernels.py`.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.interpreter import GPU
from tests.parity.qwen3_tts.rig import allocate, host
from voxserve.models.qwen3_tts.config import Qwen3Config
from voxserve.models.qwen3_tts.limits import POOL, spec
from voxserve.models.qwen3_tts.stages import Qwen3Model
from voxserve.models.qwen3_tts.weights import Codec, LanguageModel

pytest.importorskip("triton")

from voxserve.kernels.tiles import fixed_tiles, on_sms
from voxserve.models.qwen3_tts.fused_lm import FusedTalker

DEVICE = "cuda" if GPU else "cpu"
SLOTS = 4


def config(*, projected: bool) -> Qwen3Config:
    """Small sizes that kernels can take; with or without the map between talker and depth."""
    whole = host("custom_voice-0b6").config
    body = replace(whole.talker.body, hidden=64 if projected else 32, head=32)
    depth = replace(whole.talker.depth, hidden=32, head=32)
    control = replace(whole.talker.control, eos=1100)
    talker = replace(
        whole.talker,
        body=body,
        depth=depth,
        codebooks=4,
        codes=2048,
        depth_codes=256,
        control=control,
    )
    return replace(whole, talker=talker)


def plain(config: Qwen3Config) -> Qwen3Model:
    """A model of random weights that are large enough for codes to differ."""
    torch.manual_seed(0)
    language = LanguageModel(config).to(DEVICE)
    with torch.no_grad():
        for name, value in language.named_parameters():
            spread = torch.randn_like(value)
            if "norm" in name:
                value.copy_(1 + 0.2 * spread)
            else:
                value.copy_(spread if "embedding" in name else spread * value.shape[-1] ** -0.5)
    language.talker.finish()
    return Qwen3Model(config, language, Codec(config))


def started(config: Qwen3Config) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """State, and the inputs of a prefill of three rows and one of padding."""
    state = allocate(spec(config), SLOTS, SLOTS * 3, 0, "float32")
    lengths = torch.tensor([9, 16, 12, 16])
    rows = torch.randint(0, 200, (4, 16, 3), generator=torch.Generator().manual_seed(1))
    rows[:, :, 2] = -1
    rows[:, 5, 0] = -1
    sampling = torch.tensor(
        [
            [0.9, 50.0, 1.0, 1.1, 2.0, 0.9, 50.0, 1.0, 0.0],
            [0.0, 50.0, 1.0, 1.3, 2.0, 0.0, 50.0, 1.0, 0.0],
            [1.5, 0.0, 0.8, 0.7, 0.0, 1.2, 20.0, 0.9, 0.0],
            [0.9, 50.0, 1.0, 1.0, 2.0, 0.9, 50.0, 1.0, 0.0],
        ]
    )
    spare = SLOTS * 3
    inputs = {
        "slots": torch.tensor([2, 0, 3, SLOTS]),
        "lengths": lengths,
        "rows": rows,
        "sampling": sampling,
        "seeds": torch.tensor([5, 6, -7, 5]),
        "ignore_eos": torch.tensor([False, True, False, False]),
        "clips": torch.zeros(4, dtype=torch.int64),
        f"pages_{POOL}": torch.tensor([[3, 0, 7], [1, 11, 2], [8, 5, 4], [spare] * 3]),
    }
    on = {name: value.to(DEVICE) for name, value in state.items()}
    return on, {name: value.to(DEVICE) for name, value in inputs.items()}


@pytest.fixture(params=[True, False], ids=["projected", "equal widths"])
def models(request: pytest.FixtureRequest) -> Iterator[tuple[Qwen3Model, FusedTalker, Qwen3Config]]:
    torch.set_num_threads(1)
    sizes = config(projected=request.param)
    reference = plain(sizes)
    language = copy.deepcopy(reference.language)
    language.talker.finish()
    yield reference, FusedTalker(language.talker, sizes.talker), sizes


@pytest.mark.skipif(GPU, reason="float32 products are rounded on a GPU")
@pytest.mark.parametrize("fixed", [False, True], ids=["tuned", "fixed"])
def test_speaks_as_the_plain_steps_do(
    models: tuple[Qwen3Model, FusedTalker, Qwen3Config], fixed: bool
) -> None:
    """Sampled and greedy rows, unequal prompts, a page's edge, padding; prefill and decode."""
    reference, fused, sizes = models
    if fixed and sizes.talker.body.hidden == sizes.talker.depth.hidden:
        pytest.skip("fixed tiles differ in the linear maps alone")
    state, inputs = started(sizes)
    other = {name: value.clone() for name, value in state.items()}
    # The step behind another step, which is all that a third adds, does not go by the widths.
    steps = 3 if not fixed and sizes.talker.body.hidden != sizes.talker.depth.hidden else 2
    # Few SMs, so that the pages of a row are split in two.
    with fixed_tiles() if fixed else on_sms(12):
        wanted = reference.prefill(inputs, state)["codes"]
        for name, value in state.items():
            if not name.startswith("lm.kv"):
                other[name].copy_(value)
        other["lm.said"][inputs["slots"]] = False
        x = reference._embed(inputs["rows"], inputs["clips"], state)
        got = fused.prefill(x, inputs["slots"], inputs["lengths"], other)
        assert got[:3].tolist() == wanted[:3].tolist()
        for step in range(1, steps):
            # Positions far from the prompt's end reach the next page.
            jump = 60 if step == 1 else 0
            for one in (state, other):
                one["lm.prompt"][:SLOTS] += jump
            io = {
                "slots": inputs["slots"],
                "steps": torch.full((4,), step, device=DEVICE),
                "inject": torch.tensor([[3], [-1], [7], [0]], device=DEVICE),
            }
            wanted = reference.decode(io, state)["codes"]
            got = fused.decode(io["slots"], io["steps"], io["inject"], other)
            assert got[:3].tolist() == wanted[:3].tolist()
    for name, value in state.items():
        if name.startswith("lm.kv"):
            torch.testing.assert_close(other[name][:-1], value[:-1], atol=2e-4, rtol=2e-4)
        elif name.startswith("lm."):
            assert torch.equal(other[name][:SLOTS], value[:SLOTS]), name


@pytest.mark.gpu
def test_a_row_says_the_same_alone_and_in_a_graph(
    models: tuple[Qwen3Model, FusedTalker, Qwen3Config],
) -> None:
    """With fixed tiles alone as among others, whichever SMs they are for; a replay as eager."""
    _, fused, _ = models
    language = copy.deepcopy(models[0].language).to(torch.bfloat16)
    language.talker.finish()
    fused = FusedTalker(language.talker, models[2].talker)
    held, inputs = started(models[2])
    held = {n: v.to(torch.bfloat16) if n.startswith("lm.kv") else v for n, v in held.items()}
    for name, key in (("sampling", "sampling"), ("seed", "seeds"), ("pages", f"pages_{POOL}")):
        rows = held[f"lm.{name}"]
        whole = rows[inputs["slots"]]
        whole[tuple(slice(n) for n in inputs[key].shape)] = inputs[key]
        rows[inputs["slots"]] = whole
    held["lm.codes"].zero_()
    held["lm.prompt"].fill_(20)

    def step(rows: int, sms: int) -> Callable[[dict[str, Tensor]], Tensor]:
        slots = inputs["slots"][:rows]
        steps, inject = slots * 0 + 3, (slots * 0 + 7)[:, None]

        def run(state: dict[str, Tensor]) -> Tensor:
            with fixed_tiles(), on_sms(sms):
                return fused.decode(slots, steps, inject, state)

        return run

    def copies() -> dict[str, Tensor]:
        return {name: value.clone() for name, value in held.items()}

    together = step(3, 132)(copies())
    assert together[:1].tolist() == step(1, 40)(copies()).tolist()
    state = copies()
    graph, run = torch.cuda.CUDAGraph(), step(3, 132)
    with torch.cuda.graph(graph):
        codes = run(state)
    for name, value in held.items():
        state[name].copy_(value)
    graph.replay()
    assert codes.tolist() == together.tolist()
