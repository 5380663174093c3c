"""The flow on fused kernels equals the plain one, for chunks and for whole clips."""

import pytest
import torch
from torch import Tensor

from tests.kernels.rig import DEVICE, DTYPE, GPU
from voxserve.models.cosyvoice3 import fused_flow
from voxserve.models.cosyvoice3.codec_weights import load_flow
from voxserve.models.cosyvoice3.config import FlowConfig
from voxserve.models.cosyvoice3.flow import Flow
from voxserve.models.cosyvoice3.state import flow_state

SMALL = FlowConfig(
    dim=256 if GPU else 128,
    depth=2,
    heads=4 if GPU else 2,
    lookahead_channels=16,
    steps=10 if GPU else 1,
)
PAGES = 6
REAL = 18
"""Codes in the last block of a run."""


def speak(flow: Flow, blocks: int) -> list[Tensor]:
    """Mel frames of the real codes behind two blocks that others left in their pages, beside a
    padding row on a GPU; then the pages of a layer and the convolutions' state."""
    rows, generator = 2 if GPU else 1, torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(DEVICE, DTYPE)

    state: dict[str, Tensor] = {
        tensor.name: noise(PAGES + 1, *tensor.shape)
        for tensor in flow_state(SMALL)
        if tensor.scope == "page"
    }
    width, real = 2 + 25 * blocks + 3, torch.arange(rows, device=DEVICE) == 0
    codes = torch.randint(0, SMALL.vocabulary, (rows, width), generator=generator).to(DEVICE)
    count = 25 * (blocks - 1) + REAL
    table = torch.full((rows, 5), PAGES)
    table[0] = torch.tensor([2, 0, 3, 5, 1])
    with torch.inference_mode():
        mel, conv = flow.run(
            codes,
            (torch.arange(width, device=DEVICE) < 2 + count).expand(rows, -1),
            noise(rows, 50 * blocks, 80).float(),
            noise(rows, 80),
            real * count,
            real * 2,
            table.to(DEVICE),
            real[:, None].expand(-1, blocks).contiguous(),
            noise(rows, SMALL.steps, 2, 2, 30, SMALL.dim),
            state,
        )
    return [mel[0, : 2 * count], state["flow.kv.1"][:-1], conv[0]]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("few", [100, 0], ids=["few rows", "many rows"])
@pytest.mark.parametrize("blocks", [1, 3] if GPU else [1])
def test_equals_the_plain_flow(blocks: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 in the interpreter, whose time goes by the number of programs: one step of two
    layers; on a GPU in bfloat16, where every step rounds anew."""
    monkeypatch.setattr(fused_flow, "FEW_ROWS", few)
    got = speak(load_flow(None, SMALL, DEVICE, DTYPE, fused=True), blocks)
    expected = speak(load_flow(None, SMALL, DEVICE, DTYPE), blocks)
    for one, other in zip(got, expected, strict=True):
        assert one.isfinite().all()
        error = (one - other).float().pow(2).mean().sqrt() / other.float().pow(2).mean().sqrt()
        assert error < (0.03 if GPU else 1e-5)
