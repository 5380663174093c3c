"""The ends of a codec's launch: state into the buffers, codes into vectors, state back."""

import pytest
import torch
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, DTYPE, noise
from voxserve.kernels.codec_state import (
    Part,
    StateLayout,
    begin,
    begin_reference,
    end,
    end_reference,
)
from voxserve.kernels.window_attention import StepRows

PARTS = (Part(2, 48, 1), Part(54, 64, 4), Part(1, 32, 4), Part(6, 8, 8, wide=True))


def bits(x: torch.Tensor) -> torch.Tensor:
    """Halves of a float32 may be NaN, which equals nothing."""
    return x.contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", [DTYPE, torch.float16])
def test_both_ends(dtype: torch.dtype) -> None:
    """A fresh row, an old one and a short one; 54 columns of 64 take several blocks."""
    layout = StateLayout(PARTS, 3, 5, dtype=dtype, device=DEVICE)
    state = noise((5, layout.state + 40)).to(dtype)
    seen = torch.tensor([9, 8, 7, 6, 5], device=DEVICE)
    fresh = torch.tensor([False, True, False], device=DEVICE)
    lengths = torch.tensor([5, 5, 3], device=DEVICE)
    rows = StepRows(torch.tensor([2, 0, 3], device=DEVICE), lengths, fresh, seen)
    codes = torch.randint(-2, 12, (3, 5, 4), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    vectors = noise((4, 10, 48)).to(dtype)
    arena = torch.zeros(layout.size, device=DEVICE, dtype=dtype)
    expected = arena.clone()
    begin(layout, arena, state, rows, codes, vectors)
    begin_reference(layout, expected, state, rows, codes, vectors)
    for got, want in zip(layout.buffers(arena), layout.buffers(expected), strict=True):
        assert torch.equal(got.whole[:, : got.left], want.whole[:, : want.left])
        assert not got.whole[1, : got.left].any(), "the fresh row"
    vectors_of = [layout.buffers(one)[0].step for one in (arena, expected)]
    assert_close(*vectors_of, atol=ATOL, rtol=2e-3)

    for buffer in layout.buffers(arena):
        buffer.data.copy_(noise(buffer.data.shape))
    after, places = state.clone(), seen.clone()
    end_reference(
        layout, arena, after[:, : layout.state], StepRows(rows.slots, lengths, fresh, places)
    )
    end(layout, arena, state, rows)
    assert torch.equal(bits(state), bits(after)) and torch.equal(seen, places)
    assert seen.tolist() == [5, 8, 12, 9, 5]


def test_buffers_do_not_overlap() -> None:
    layout = StateLayout(PARTS, 3, 5, dtype=DTYPE, device=DEVICE)
    arena = torch.zeros(layout.size, device=DEVICE, dtype=DTYPE)
    buffers = layout.buffers(arena)
    for number, buffer in enumerate(buffers, start=1):
        assert not buffer.data.any()
        buffer.data.fill_(number)
        assert buffer.data.data_ptr() % 128 == arena.data_ptr() % 128
    assert layout.state == 2 * 48 + 54 * 64 + 32 + 6 * 8 * 4 // DTYPE.itemsize
