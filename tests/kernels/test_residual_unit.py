"""The fused residual unit and the last convolution against torch."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, DTYPE, noise, snake_weights
from voxserve.kernels.conv_gemm import ConvWeights, pack_conv
from voxserve.kernels.last_conv import last_conv, last_conv_reference
from voxserve.kernels.padded import Padded
from voxserve.kernels.residual_unit import UnitWeights, pack_last, residual_unit, unit_reference
from voxserve.kernels.tiles import fixed_tiles


def unit(channels: int, dilation: int) -> UnitWeights:
    first = pack_conv(noise((channels, channels, 7), (7 * channels) ** -0.5))
    second = noise((channels, channels), channels**-0.5)
    bias = noise((channels,)).float()
    return UnitWeights(
        first=ConvWeights(first, bias, taps=7, dilation=dilation),
        inner=snake_weights(channels),
        second=ConvWeights(second, -bias, taps=1),
        outer=snake_weights(channels),
    )


@pytest.mark.parametrize("channels", [96, 192])
@pytest.mark.parametrize(("dilation", "steps"), [(1, 7), (9, 50)])
def test_unit(channels: int, dilation: int, steps: int) -> None:
    src = Padded.zeros(2, 6 * dilation, steps, channels, device=DEVICE, dtype=DTYPE)
    src.data.copy_(noise(src.data.shape))
    weights, residual = unit(channels, dilation), noise((2, steps, channels))
    out = Padded.zeros(2, 1, steps, channels, device=DEVICE, dtype=DTYPE)
    plain, activated = unit_reference(src, weights, residual)
    alone = torch.zeros_like(residual)
    residual_unit(src, weights, residual, raw=alone, out=out)
    assert_close(alone, plain, atol=ATOL, rtol=ATOL)
    assert_close(out.step, activated, atol=ATOL, rtol=ATOL)
    residual_unit(src, weights, residual, raw=residual, out=out)
    assert torch.equal(residual, alone), "in place"


def test_tiles_do_not_change_the_result() -> None:
    """96 channels have two tile heights; rows of one are computed as those of the other."""
    src = Padded.zeros(1, 6, 40, 96, device=DEVICE, dtype=DTYPE)
    src.data.copy_(noise(src.data.shape))
    weights, residual = unit(96, 1), noise((1, 40, 96))
    low, high = torch.zeros_like(residual), torch.zeros_like(residual)
    out = Padded.zeros(1, 0, 40, 96, device=DEVICE, dtype=DTYPE)
    residual_unit(src, weights, residual, raw=low, out=out)
    with fixed_tiles():
        residual_unit(src, weights, residual, raw=high, out=out)
    assert_close(low, high, atol=ATOL, rtol=ATOL)


def test_last_unit_and_last_convolution_are_the_convolution() -> None:
    """Against `conv1d` on the unit's activated output, its left context as products before it."""
    src = Padded.zeros(2, 6, 30, 96, device=DEVICE, dtype=DTYPE)
    src.data.copy_(noise(src.data.shape))
    taps, bias = noise((1, 96, 7), 0.02), noise((1,), 0.1)
    weights = replace(unit(96, 1), last=pack_last(taps))
    residual, before = noise((2, 30, 96)), noise((2, 6, 96))
    products = Padded.zeros(2, 6, 30, 8, device=DEVICE, dtype=torch.float32)
    assert weights.last is not None
    products.whole[:, :6] = before.float() @ weights.last[:8].float().T
    residual_unit(src, weights, residual, raw=None, out=products)
    audio = torch.zeros(2, 30, device=DEVICE)
    last_conv(products, bias.float(), audio)
    _, activated = unit_reference(src, replace(weights, last=None), residual)
    assert_close(products.step, unit_reference(src, weights, residual)[1], atol=ATOL, rtol=ATOL)
    whole = torch.cat((before, activated), dim=1).transpose(1, 2)
    expected = functional.conv1d(whole, taps, bias)[:, 0].clamp(-1, 1).float()
    assert (expected.abs() == 1).any() and (expected.abs() < 1).any()
    assert_close(audio, expected, atol=ATOL, rtol=ATOL)
    assert_close(audio, last_conv_reference(products, bias), atol=1e-5, rtol=1e-5)
