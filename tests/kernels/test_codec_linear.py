"""Linear layers with norm, activation, residual and placing, against torch."""

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, DTYPE, noise
from voxserve.kernels.codec_linear import (
    Behind,
    LinearWeights,
    codec_linear,
    float_bias,
    linear_reference,
    pack_transposed_apart,
)
from voxserve.kernels.padded import Padded
from voxserve.kernels.tiles import fixed_tiles, on_sms


def plain(rows: int, steps: int, channels: int) -> Padded:
    return Padded(noise((rows * steps, channels)), rows, 0, steps)


@pytest.mark.parametrize("behind", list(Behind))
@pytest.mark.parametrize("eps", [None, 1e-5])
@pytest.mark.parametrize(("rows", "steps"), [(1, 1), (3, 7), (3, 30)])
def test_norm_and_activation(behind: Behind, eps: float | None, rows: int, steps: int) -> None:
    x = plain(rows, steps, 128)
    height = 2 * 96 if behind is Behind.SWIGLU else 96
    bias = None if behind is Behind.SWIGLU else noise((96,)).float()
    weights = LinearWeights(noise((height, 128), 0.1), bias, eps=eps, behind=behind)
    out = Padded.zeros(rows, 0, steps, 96, device=DEVICE, dtype=DTYPE)
    expected = linear_reference(x.whole, weights)
    with on_sms(4):
        codec_linear(x, weights, out)
    assert_close(out.whole, expected, atol=ATOL, rtol=ATOL)
    with fixed_tiles():
        codec_linear(x, weights, out)
    assert_close(out.whole, expected, atol=ATOL, rtol=ATOL)


def test_residual_and_place_in_padded_buffers() -> None:
    x = plain(2, 5, 64)
    weights = LinearWeights(noise((32, 64), 0.1), noise((32,)).float())
    residual = Padded.zeros(2, 6, 5, 32, device=DEVICE, dtype=DTYPE)
    residual.data.copy_(noise(residual.data.shape))
    before = residual.whole.clone()
    out = Padded.zeros(2, 3, 5, 32, device=DEVICE, dtype=DTYPE)
    expected = linear_reference(x.whole, weights, before[:, 6:])
    codec_linear(x, weights, out, residual=residual)
    assert_close(out.step, expected, atol=ATOL, rtol=ATOL)
    assert not out.whole[:, :3].any()
    codec_linear(x, weights, residual, residual=residual)
    assert torch.equal(residual.step, out.step), "in place"
    assert torch.equal(residual.whole[:, :6], before[:, :6])


def test_rows_cut_into_columns_are_a_transposed_convolution() -> None:
    x, stride = plain(2, 3, 64), 2
    weight, bias = noise((64, 32, stride), 0.1), noise((32,))
    packed = LinearWeights(pack_transposed_apart(weight), float_bias(bias, stride), up=stride)
    out = Padded.zeros(2, 6, 6, 32, device=DEVICE, dtype=DTYPE)
    codec_linear(x, packed, out)
    expected = functional.conv_transpose1d(x.whole.transpose(1, 2), weight, bias, stride=stride)
    assert_close(out.step, expected.transpose(1, 2), atol=ATOL, rtol=ATOL)


@pytest.mark.gpu
@pytest.mark.parametrize("behind", [Behind.NOTHING, Behind.SWIGLU])
def test_the_same_bits_again_and_again(behind: Behind) -> None:
    """Tall tiles are multiplied asynchronously: nothing may be overwritten while it is read."""
    weights = LinearWeights(noise((2048, 512), 0.1), eps=1e-5, behind=behind)
    columns = 1024 if behind is Behind.SWIGLU else 2048
    x = plain(8, 4, 512)
    outs = [Padded.zeros(8, 0, 4, columns, device=DEVICE, dtype=DTYPE) for _ in range(50)]
    alone = Padded.zeros(1, 0, 4, columns, device=DEVICE, dtype=DTYPE)
    junk = torch.zeros(64 * 2**20, device=DEVICE)
    with fixed_tiles():
        for out in outs:
            junk.add_(1)  # weights come from memory, as late as they ever do
            codec_linear(x, weights, out)
        codec_linear(Padded(x.data[12:16], 1, 0, 4), weights, alone)
    for out in outs:
        assert torch.equal(out.data, outs[0].data)
    assert torch.equal(alone.data, outs[0].data[12:16])
