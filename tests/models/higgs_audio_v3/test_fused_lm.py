"""The fused steps say what the plain ones say: on a CPU in Triton's interpreter, float32.

On a GPU products of float32 are rounded, so that codes may differ: there the logits are compared.
"""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.interpreter import GPU
from tests.parity.higgs_audio_v3.rig import allocate
from tests.parity.higgs_audio_v3.rig import host as small_host
from voxserve.models.higgs_audio_v3.config import HiggsConfig
from voxserve.models.higgs_audio_v3.limits import POOL, spec
from voxserve.models.higgs_audio_v3.lm import HiggsLm
from voxserve.models.higgs_audio_v3.stages import HiggsModel

pytest.importorskip("triton")

from voxserve.models.higgs_audio_v3.fused_lm import FusedHiggs

DEVICE = "cuda" if GPU else "cpu"
ATOL = 5e-2 if GPU else 1e-4
SLOTS, LENGTH = 3, 9


def config() -> HiggsConfig:
    """A body whose width is no power of two, as the published one's, and few codes."""
    whole = small_host().config
    body = replace(whole.body, hidden=96, inner=64, layers=2, head=32, codes=34, text_vocabulary=50)
    return replace(whole, body=body)


def plain(made: HiggsConfig) -> HiggsModel:
    torch.manual_seed(0)
    lm = HiggsLm(made.body)
    with torch.no_grad():
        for name, value in lm.named_parameters():
            spread = torch.randn_like(value)
            value.copy_(1 + 0.2 * spread if "norm" in name else spread * value.shape[-1] ** -0.5)
    return HiggsModel(made, lm.requires_grad_(False).to(DEVICE), None)  # type: ignore[arg-type]


def started(made: HiggsConfig) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """State, and the inputs of a prefill of one row whose bucket is larger than its prompt."""
    state = allocate(spec(made), SLOTS, SLOTS, 1)
    rows = torch.randint(0, 50, (1, 16, 2), generator=torch.Generator().manual_seed(1))
    rows[:, :, 1] = -1
    io = {
        "slots": torch.tensor([2]),
        "lengths": torch.tensor([LENGTH]),
        "rows": rows,
        "sampling": torch.tensor([[0.8, 30, 0.8, 1.0, 0.0, 0.0]]),
        "seeds": torch.tensor([1]),
        "ignore_eos": torch.tensor([False]),
        "clips": torch.tensor([1]),
        f"pages_{POOL}": torch.tensor([[2]]),
    }
    return {n: t.to(DEVICE) for n, t in state.items()}, {n: t.to(DEVICE) for n, t in io.items()}


def spoken(model: HiggsModel, made: HiggsConfig) -> list[Tensor]:
    """Logits of a prefill and of one step behind it, with a row of padding, by whatever runs them,
    and the step's codes; the step hears the same codes whoever ran the prefill."""
    state, io = started(made)
    seen: list[Tensor] = []
    say = model._say

    def noted(logits: Tensor, *rest: Tensor) -> Tensor:
        seen.append(logits[0].clone())
        codes: Tensor = say(logits, *rest)  # type: ignore[arg-type]
        return codes

    model._say = noted  # type: ignore[method-assign, assignment]
    model.prefill(io, state)
    codes = torch.randint(0, 8, (SLOTS + 1, 8), generator=torch.Generator().manual_seed(5))
    state["lm.codes"].copy_(codes)
    slots = torch.tensor([2, SLOTS], device=DEVICE)
    inject = torch.full((2, 1), -1, device=DEVICE)
    step = {"slots": slots, "steps": torch.full_like(slots, 9), "inject": inject}
    said = model.decode(step, state)["codes"][0]
    assert state["lm.codes"][2].tolist() == said.tolist()
    return [*seen, said]


def test_fused_steps_equal_plain_ones() -> None:
    """A prefill, which multiplies by torch's library, and a step, which does not."""
    made = config()
    reference = plain(made)
    fused = copy.deepcopy(reference)
    fused.fused = FusedHiggs(fused.lm)
    *wanted_logits, wanted_codes = spoken(reference, made)
    *logits, codes = spoken(fused, made)
    if not GPU:
        assert codes.tolist() == wanted_codes.tolist()
    for wanted, got in zip(wanted_logits, logits, strict=True):
        torch.testing.assert_close(got, wanted, atol=ATOL, rtol=ATOL)
