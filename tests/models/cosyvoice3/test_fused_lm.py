"""The fused steps say what the plain ones say: on a CPU in Triton's interpreter, float32.

On a GPU products of float32 are rounded, so that codes may differ: there the logits are compared.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close as close

from tests.interpreter import GPU
from voxserve.models.cosyvoice3.config import (
    CosyVoiceConfig,
    FlowConfig,
    LmConfig,
    Repetition,
    VocoderConfig,
)
from voxserve.models.cosyvoice3.layout import CLIP, CODE, TEXT
from voxserve.models.cosyvoice3.limits import FLOW_POOL, LM_POOL
from voxserve.models.cosyvoice3.limits import state as state_of
from voxserve.models.cosyvoice3.lm import LanguageModel
from voxserve.models.cosyvoice3.stages import CosyVoiceModel

pytest.importorskip("triton")

from voxserve.kernels.stream import Stream
from voxserve.kernels.tiles import on_sms
from voxserve.models.cosyvoice3.fused_lm import FusedLm

DEVICE = "cuda" if GPU else "cpu"
ATOL = 5e-2 if GPU else 1e-4
SLOTS, SPARE, WIDTH, STEPS = 3, 4, 48, 5
CONFIG = LmConfig(
    hidden=96,
    inner=64,
    layers=1,
    heads=6,
    kv_heads=2,
    eps=1e-6,
    theta=1e6,
    text_vocabulary=50,
    codes=60,
)
"""Neither the width nor the query heads are a power of two, as of the published model; few codes,
so that some come back."""
REPETITION = Repetition(top_p=0.8, top_k=25, window=4, limit=1.0)
SMALL_FLOW = FlowConfig(depth=1, heads=1, head=16, dim=16, steps=1)
WHOLE = CosyVoiceConfig(CONFIG, REPETITION, SMALL_FLOW, VocoderConfig())
SAMPLING = torch.tensor([[1.0, 5, 0.8, 1.0, 3], [0.0, -1, 1.0, 1.5, 3], [0.7, 0, 0.9, 1.2, 0]])


def plain() -> LanguageModel:
    torch.manual_seed(0)
    lm = LanguageModel(CONFIG)
    with torch.no_grad():
        for name, value in lm.named_parameters():
            spread = torch.randn_like(value)
            value.copy_(1 + 0.2 * spread if "norm" in name else spread * value.shape[-1] ** -0.5)
    return lm.requires_grad_(False).to(DEVICE)


def model(lm: LanguageModel, *, fused: bool) -> CosyVoiceModel:
    fast = FusedLm(lm, CONFIG, REPETITION) if fused else None
    nothing: Any = None
    return CosyVoiceModel(WHOLE, lm, nothing, nothing, nothing, fused=fast)


def fresh_state() -> dict[str, Tensor]:
    """Of what the language model's stages touch. Pages hold what somebody else may need."""
    counts = {"row": SLOTS + 1, "page": SPARE + 1, "clip": 2}
    made = {}
    for part in state_of(WHOLE):
        if part.name.startswith(("lm.", "codec.", "clip.codes", "flow.kv.0")):
            kind = torch.float32 if part.dtype == "model" else getattr(torch, part.dtype)
            made[part.name] = torch.zeros(counts[part.scope], *part.shape, dtype=kind)
            if part.scope == "page":
                made[part.name] += 7.0
    return {name: value.to(DEVICE) for name, value in made.items()}


def prompts() -> dict[str, Tensor]:
    """Of two rows and one of padding, filled up to a bucket that is no power of two."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.full((3, WIDTH, 3), -1)
    rows[..., TEXT] = torch.randint(0, 50, (3, WIDTH), generator=generator)
    rows[:, 4, TEXT], rows[:, 4, CODE] = -1, CONFIG.task
    rows[:, 5:7, TEXT] = -1
    rows[:, 5:7, CLIP] = torch.tensor([0, 1])
    io = {
        "slots": torch.tensor([2, 0, SLOTS]),
        "lengths": torch.tensor([WIDTH, 9, WIDTH]),
        "rows": rows,
        "sampling": SAMPLING,
        "seeds": torch.tensor([5, 6, 5]),
        "ignore_eos": torch.tensor([False, True, False]),
        "clips": torch.tensor([0, 0, 1]),
        f"pages_{LM_POOL}": torch.tensor([[3, 0], [1, 2], [SPARE, SPARE]]),
        f"pages_{FLOW_POOL}": torch.full((3, 1), SPARE),
    }
    return {name: value.to(DEVICE) for name, value in io.items()}


def spoken(it: CosyVoiceModel) -> tuple[list[list[int]], dict[str, Tensor]]:
    """Codes of a prefill and of steps behind it, and the state after them."""
    state, io = fresh_state(), prompts()
    said = [it.prefill(io, state)["codes"]]
    for step in range(1, STEPS):
        if step == 2:  # positions far from the prompt's end reach the next page
            state["lm.prompt"][:SLOTS] += 60
        steps = torch.full_like(io["slots"], step)
        said.append(it.decode({"slots": io["slots"], "steps": steps}, state)["codes"])
    return torch.cat(said, dim=1)[:2].tolist(), state


@pytest.mark.skipif(GPU, reason="float32 products are rounded on a GPU")
def test_speaks_as_the_plain_steps_do() -> None:
    """Sampled and greedy rows, unequal prompts, a page's edge, padding; prefill and decode."""
    torch.set_num_threads(1)
    with on_sms(12):  # few, so that the pages of a row are split in two
        wanted, plain_state = spoken(model(plain(), fused=False))
        got, state = spoken(model(plain(), fused=True))
    assert got == wanted
    for name, value in plain_state.items():
        if name.startswith("lm."):
            close(state[name][:-1], value[:-1], atol=1e-4, rtol=1e-4)


def test_logits_of_a_step_equal_the_plain_ones() -> None:
    """Behind the same pages."""
    lm = plain()
    reference, it = model(copy.deepcopy(lm), fused=False), model(lm, fused=True)
    state, io = fresh_state(), prompts()
    reference.prefill(io, state)
    assert it.fused is not None
    seen: list[Tensor] = []
    real = it.fused.logits

    def noted(stream: Stream) -> Tensor:
        logits = real(stream)
        seen.append(logits[:2, : CONFIG.speech_vocabulary].clone())
        return logits

    with pytest.MonkeyPatch.context() as patch, on_sms(12):
        patch.setattr(it.fused, "logits", noted)
        steps = torch.ones_like(io["slots"])
        it.decode({"slots": io["slots"], "steps": steps}, {n: t.clone() for n, t in state.items()})
    x = reference.lm.speech_embedding(state["lm.code"][io["slots"]])[:, None]
    positions, attends = reference._paged(state).next(io["slots"], steps)
    hidden = reference.lm.run(x, positions, attends)[:2, 0]
    close(seen[0], reference.lm.llm_decoder(hidden), atol=ATOL, rtol=ATOL)
