"""The grouped convolution and its state against torch."""

import pytest
import torch
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, noise
from voxserve.kernels.position_conv import (
    group_weight,
    position_conv,
    position_conv_reference,
)

TAPS, GROUPS = 7, 2


@pytest.mark.parametrize(("frames", "channels"), [(50, 16), (100, 8)])
@pytest.mark.parametrize("residual", [False, True])
def test_equals_plain_torch(frames: int, channels: int, residual: bool) -> None:
    """Fewer real frames than the state holds, and a full row; more frames than a tile has."""
    dim = GROUPS * channels
    x = noise((4, frames, dim))
    states = noise((2, 3, 2, 2, TAPS - 1, dim), seed=1)
    weight, bias = noise((dim, channels, TAPS), (channels * TAPS) ** -0.5), noise((dim,))
    lengths = torch.tensor([4, frames], device=DEVICE)
    before = states[:, 2, :, 1]
    expected, kept = position_conv_reference(x, before, weight, bias, lengths, GROUPS)
    out, after = torch.empty_like(x), torch.full_like(states, 7.0)
    own = noise((4, frames, dim), seed=2) if residual else None
    place = after[:, 2, :, 1]
    position_conv(x, before, place, group_weight(weight, GROUPS), bias, lengths, out, own)
    assert_close(out, expected if own is None else expected + own, atol=ATOL, rtol=ATOL)
    assert_close(place, kept, atol=0, rtol=0)
    after[:, 2, :, 1] = 7.0
    assert (after == 7.0).all(), "other steps' states stay"


def test_mish_of_large_values() -> None:
    x = torch.full((2, 20, 64), 3.0, device=DEVICE, dtype=noise((1,)).dtype)
    weight, bias = torch.zeros(64, 32, TAPS, device=DEVICE).to(x), torch.zeros_like(x[0, 0])
    weight[:, 0, -1], bias[:32] = 30.0, -180.0
    before = torch.zeros(1, 2, TAPS - 1, 64, device=DEVICE).to(x)
    out, lengths = torch.empty_like(x), torch.tensor([50], device=DEVICE)
    position_conv(
        x, before, torch.empty_like(before), group_weight(weight, GROUPS), bias, lengths, out
    )
    assert_close(out[0, 0, 32:], torch.full_like(out[0, 0, 32:], 90.0), atol=ATOL, rtol=ATOL)
    assert_close(out[0, 0, :32], torch.zeros_like(out[0, 0, :32]), atol=ATOL, rtol=0)
