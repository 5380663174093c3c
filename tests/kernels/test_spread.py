"""Where the branches of a HiFT vocoder begin and meet, against plain torch."""

import pytest
import torch
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, DTYPE, noise
from voxserve.kernels.padded import Padded
from voxserve.kernels.spread import (
    gather_leaky,
    gather_leaky_reference,
    spread,
    spread_reference,
)

ROWS, STEPS, CHANNELS = 2, 40, 16


def padded(left: int, seed: int) -> Padded:
    data = noise((ROWS * (left + STEPS), CHANNELS), seed=seed)
    return Padded(data, ROWS, left, STEPS)


@pytest.mark.parametrize(("branches", "late"), [(1, False), (3, False), (3, True)])
def test_spread_equals_plain_torch(branches: int, late: bool) -> None:
    """Left contexts of the outputs stay as they are; a fresh row mirrors its first column."""
    up = padded(int(late), 1)
    fresh = torch.tensor([True, False], device=DEVICE) if late else None
    source = noise((ROWS, STEPS, CHANNELS), seed=2) if branches == 3 else None
    weights = [noise((2, CHANNELS), seed=seed).float().abs() for seed in range(branches)]
    outs = [padded(left, 3 + left) for left in (6, 0, 10)[:branches]]
    contexts = [out.whole[:, : out.left].clone() for out in outs]
    x, activated = spread_reference(up, weights, source, fresh)
    raw = torch.zeros_like(x) if branches == 3 else None
    spread(up, list(zip(weights, outs, strict=True)), source=source, raw=raw, fresh=fresh)
    if raw is not None:
        assert_close(raw, x, atol=ATOL, rtol=ATOL)
    for out, context, expected in zip(outs, contexts, activated, strict=True):
        assert_close(out.step, expected, atol=ATOL, rtol=ATOL)
        assert torch.equal(out.whole[:, : out.left], context)


def test_gather_leaky_equals_plain_torch() -> None:
    parts = [noise((ROWS, STEPS, CHANNELS), seed=seed) for seed in range(3)]
    out = Padded.zeros(ROWS, 2, STEPS, CHANNELS, device=DEVICE, dtype=DTYPE)
    gather_leaky(parts, 0.1, out)
    assert_close(out.step, gather_leaky_reference(parts, 0.1), atol=ATOL, rtol=ATOL)
    assert (out.whole[:, :2] == 0).all()
