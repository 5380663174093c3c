"""Streaming convolutions: any cuts equal one pass over the whole, and rows keep to themselves."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from voxserve.nn.causal_conv import (
    CausalConv1d,
    CausalConvTranspose1d,
    Memory,
    masked,
    reflect_pad,
    strided,
)

LENGTH = 30
Layer = CausalConv1d | CausalConvTranspose1d


def sound(channels: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, channels, LENGTH, dtype=torch.float64, generator=generator)


def stream(layer: Layer, x: Tensor, cuts: Sequence[int]) -> Tensor:
    state = x.new_zeros(len(x), *layer.state_shape)
    parts, begin = [], 0
    for count in cuts:
        lengths = torch.full((len(x),), count)
        out, state = layer(x[..., begin : begin + count], state, lengths)
        parts.append(out)
        begin += count
    return torch.cat(parts, dim=2)


CUTS = [[LENGTH], [1] * LENGTH, [1, 2, 4, 10, 10, 3], [20, 10]]


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize(
    ("kernel", "dilation", "groups"), [(1, 1, 1), (3, 1, 1), (7, 1, 4), (7, 3, 1), (3, 9, 2)]
)
def test_conv_equals_left_padding(kernel: int, dilation: int, groups: int, cuts: list[int]) -> None:
    layer = CausalConv1d(4, 8, kernel, dilation=dilation, groups=groups).double()
    x = sound(4)
    padded = functional.pad(x, ((kernel - 1) * dilation, 0))
    expected = functional.conv1d(
        padded, layer.conv.weight, layer.conv.bias, dilation=dilation, groups=groups
    )
    assert_close(stream(layer, x, cuts), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (6, 3), (12, 4), (5, 5)])
def test_transposed_conv_equals_trimming_on_the_right(
    kernel: int, stride: int, cuts: list[int]
) -> None:
    layer = CausalConvTranspose1d(4, 3, kernel, stride).double()
    x = sound(4)
    whole = functional.conv_transpose1d(x, layer.conv.weight, layer.conv.bias, stride=stride)
    expected = whole[..., : LENGTH * stride]
    assert_close(stream(layer, x, cuts), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_a_flat_memory_holds_all_layers(cuts: list[int]) -> None:
    """Two layers with columns of different rates and a plain look at what came before, in order."""
    conv, up = CausalConv1d(4, 2, 3).double(), CausalConvTranspose1d(2, 2, 4, 2).double()
    x = sound(4)

    def run(part: Tensor, flat: Tensor) -> tuple[Tensor, Tensor]:
        memory = Memory(flat, torch.full((len(x),), part.shape[2]))
        y = memory.run(up, memory.run(conv, part, 1), 1)
        return memory.extend(y, 3, 2)[..., :-3] - y, memory.after

    flat = x.new_zeros(len(x), 4 * 2 + 2 * 1 + 2 * 3)
    whole, _ = run(x, flat)
    parts, begin = [], 0
    for count in cuts:
        part, flat = run(x[..., begin : begin + count], flat)
        parts.append(part)
        begin += count
    assert flat.shape == (2, 16)
    assert_close(torch.cat(parts, dim=2), whole, rtol=0, atol=1e-12)


def test_a_kernel_that_no_stride_divides_is_refused() -> None:
    with pytest.raises(ValueError, match="kernel 5 is not a multiple of the stride 2"):
        CausalConvTranspose1d(1, 1, 5, 2)


@pytest.mark.parametrize(
    "layer", [CausalConv1d(4, 4, 5, dilation=2), CausalConvTranspose1d(4, 4, 6, 2)]
)
def test_rows_may_differ_in_their_real_length(layer: Layer) -> None:
    """Behind the real columns stands garbage; the next step goes on where each row ended."""
    layer = layer.double()
    x, lengths = sound(4), torch.tensor([12, 5])
    padded = x[..., :12].clone()
    padded[1, :, 5:] = 1e3
    state = x.new_zeros(2, *layer.state_shape)
    first, state = layer(padded, state, lengths)
    following = torch.stack([x[0, :, 12:20], x[1, :, 5:13]])
    second, _ = layer(following, state, torch.tensor([8, 8]))
    rate = first.shape[2] // 12
    whole = stream(layer, x, [LENGTH])
    for row, length in enumerate(lengths.tolist()):
        got = torch.cat((first[row, :, : length * rate], second[row]), dim=1)
        assert_close(got, whole[row, :, : (length + 8) * rate], rtol=0, atol=1e-12)


def test_a_lost_state_is_noticed() -> None:
    layer = CausalConv1d(4, 4, 3).double()
    x = sound(4)
    nothing = x.new_zeros(2, *layer.state_shape)
    second, _ = layer(x[..., 15:], nothing, torch.tensor([15, 15]))
    assert not torch.allclose(second, stream(layer, x, [LENGTH])[..., 15:])


def test_reflection_is_at_each_rows_own_end() -> None:
    x = torch.arange(16.0).view(2, 1, 8)
    padded = reflect_pad(x, torch.tensor([8, 5]), 3, 2)
    assert_close(padded[0, :, :13], functional.pad(x[:1], (3, 2), mode="reflect")[0])
    assert_close(padded[1, :, :10], functional.pad(x[1:, :, :5], (3, 2), mode="reflect")[0])


def test_mask_zeroes_what_is_not_real_even_if_it_is_no_number() -> None:
    x = torch.tensor([[[1.0, 2.0, torch.nan]], [[3.0, torch.inf, 4.0]]])
    assert masked(x, torch.tensor([2, 1])).tolist() == [[[1, 2, 0]], [[3, 0, 0]]]


def test_strided_conv_pads_up_to_whole_strides() -> None:
    conv = nn.Conv1d(2, 3, 6, stride=4).double()
    x = sound(2)
    padded = functional.pad(x, (2, 2))
    expected = functional.conv1d(padded, conv.weight, conv.bias, stride=4)
    assert expected.shape[2] == 8
    assert_close(strided(x, conv, 4), expected)
