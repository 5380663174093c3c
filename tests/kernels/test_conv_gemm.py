"""The convolution kernel against torch, in Triton's interpreter or on the GPU."""

import pytest
import torch
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, DTYPE, noise, snake_weights
from voxserve.kernels.conv_gemm import (
    ConvWeights,
    Tile,
    conv_gemm,
    conv_reference,
    pack_conv,
    pack_transposed,
    tile_for,
)
from voxserve.kernels.padded import Padded
from voxserve.kernels.tiles import fixed_tiles, on_sms


def source(rows: int, left: int, steps: int, channels: int) -> Padded:
    buffer = Padded.zeros(rows, left, steps, channels, device=DEVICE, dtype=DTYPE)
    buffer.data.copy_(noise(buffer.data.shape))
    return buffer


@pytest.mark.parametrize(("dilation", "steps"), [(1, 5), (3, 40), (9, 21)])
def test_dilated_with_residual_and_activation(dilation: int, steps: int) -> None:
    """Two rows, so that a tile spans the second one's left context; rows of less than a tile."""
    src = source(2, 6 * dilation, steps, 64)
    weights = ConvWeights(
        pack_conv(noise((96, 64, 7), 0.1)), noise((96,)).float(), taps=7, dilation=dilation
    )
    residual, snake = noise((2, steps, 96)), snake_weights(96)
    out = Padded.zeros(2, 4, steps, 96, device=DEVICE, dtype=DTYPE)
    raw = torch.zeros_like(residual)
    conv_gemm(src, weights, residual=residual, raw=raw, activated=(snake, out))
    plain, activated = conv_reference(src, weights, residual=residual, snake_weights=snake)
    assert_close(raw, plain, atol=ATOL, rtol=ATOL)
    assert_close(out.step, activated, atol=ATOL, rtol=ATOL)
    assert not out.whole[:, :4].any(), "the left context belongs to the state"


def test_residual_may_be_updated_in_place() -> None:
    src, weights = source(2, 0, 9, 64), ConvWeights(noise((64, 64), 0.1), noise((64,)).float(), 1)
    raw = noise((2, 9, 64))
    expected, _ = conv_reference(src, weights, residual=raw)
    conv_gemm(src, weights, residual=raw, raw=raw)
    assert_close(raw, expected, atol=ATOL, rtol=ATOL)


def test_transposed_is_torchs_transposed_convolution() -> None:
    """Against `conv_transpose1d` over the column before and the step, trimmed to the step."""
    src, stride = source(2, 1, 6, 64), 5
    weight, bias = noise((64, 32, 2 * stride), 0.1), noise((32,))
    packed = ConvWeights(pack_transposed(weight, stride), bias.float(), taps=2, up=stride)
    raw = noise((2, 30, 32))
    conv_gemm(src, packed, raw=raw)
    whole = torch.nn.functional.conv_transpose1d(
        src.whole.transpose(1, 2), weight, bias, stride=stride
    )
    assert_close(raw, whole[:, :, stride : 7 * stride].transpose(1, 2), atol=ATOL, rtol=ATOL)
    assert_close(raw, conv_reference(src, packed)[0], atol=ATOL, rtol=ATOL)


def test_every_tile_gives_the_same_result() -> None:
    src = source(1, 6, 70, 128)
    weights = ConvWeights(pack_conv(noise((160, 128, 7), 0.1)), noise((160,)).float(), taps=7)
    expected, _ = conv_reference(src, weights)
    for tile in (Tile(128, 128, 64, 4, 3), Tile(64, 32, 64, 4, 5), Tile(64, 128, 32, 4, 4)):
        raw = torch.zeros_like(expected)
        conv_gemm(src, weights, raw=raw, tile=tile)
        assert_close(raw, expected, atol=ATOL, rtol=ATOL)


def test_tiles_shrink_until_they_fill_the_sms_and_fixed_ones_never() -> None:
    with on_sms(132):
        sizes = [tile_for(rows, 1536, 1024, 7) for rows in (10, 100, 700, 10_000)]
    areas = [tile.rows * tile.columns for tile in sizes]
    assert areas == sorted(areas) and areas[0] < areas[1] < areas[2] < areas[3]
    with on_sms(32):
        assert tile_for(700, 1536, 1024, 7) == sizes[3]
    with fixed_tiles():
        for count in (32, 132):
            with on_sms(count):
                assert {tile_for(rows, 1536, 1024, 7) for rows in (1, 10_000)} == {sizes[3]}
