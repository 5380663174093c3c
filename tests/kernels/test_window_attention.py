"""Attention over the ring in the slots against the one that `WindowKv` explains."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, DTYPE, noise
from voxserve.kernels.window_attention import (
    StepRows,
    window_attention,
    window_attention_reference,
)
from voxserve.nn.attention import WindowKv
from voxserve.nn.transformer import Rope, rotate

HEADS, HEAD = 2, 32


def step(slots: list[int], lengths: list[int], fresh: list[bool], seen: Tensor) -> StepRows:
    return StepRows(
        torch.tensor(slots, device=DEVICE),
        torch.tensor(lengths, device=DEVICE),
        torch.tensor(fresh, device=DEVICE),
        seen,
    )


def run(qkv: Tensor, window: Tensor, rows: StepRows, layer: int = 1) -> Tensor:
    out = torch.zeros(*qkv.shape[:2], HEADS * HEAD, device=DEVICE, dtype=DTYPE)
    frequencies = Rope(HEAD, 10_000.0).frequencies.to(DEVICE)
    window_attention(qkv, out, window, layer, rows, frequencies)
    return out


@pytest.mark.parametrize("frames", [1, 4, 10])
@pytest.mark.parametrize("kept", [5, 19])
def test_rows_of_different_age(frames: int, kept: int) -> None:
    """A fresh row over another's leavings, a young one, an old one and a short last chunk; windows
    shorter and longer than the step. Of the window only the step's places may change."""
    qkv = noise((4, frames, 3 * HEADS * HEAD))
    window = noise((6, 2, 2, kept, HEADS, HEAD))
    seen = torch.tensor([3, 40, 1000, 7, 0, 0], device=DEVICE)
    lengths = [frames, frames, frames, max(1, frames - 2)]
    rows = step([1, 0, 2, 3], lengths, [True, False, False, False], seen)
    expected_window = window.clone()
    frequencies = Rope(HEAD, 10_000.0).frequencies.to(DEVICE)
    expected = window_attention_reference(qkv, expected_window, 1, rows, frequencies)
    out = run(qkv, window, rows)
    assert_close(out, expected, atol=ATOL, rtol=ATOL)
    assert_close(window, expected_window, atol=ATOL, rtol=ATOL)


def test_stream_equals_the_reference_layer() -> None:
    """Chunks through the ring against `WindowKv` with its right-aligned window, over several turns
    of the ring."""
    kept, slot = 7, 1
    window = noise((3, 1, 2, kept, HEADS, HEAD))
    seen = torch.zeros(3, dtype=torch.int64, device=DEVICE)
    past = torch.zeros(1, 2, kept, HEADS, HEAD, device=DEVICE, dtype=DTYPE)
    rope, place = Rope(HEAD, 10_000.0).to(DEVICE), 0
    for index, frames in enumerate((1, 2, 4, 10, 3, 1, 10)):
        qkv = noise((1, frames, 3 * HEADS * HEAD), seed=index)
        lengths = torch.tensor([frames], device=DEVICE)
        places = torch.arange(place, place + frames, device=DEVICE)[None]
        queries, keys, values = qkv.view(1, frames, 3, HEADS, HEAD).unbind(2)
        turn = rope(places, DTYPE)
        attend = WindowKv(past, torch.tensor([place], device=DEVICE), lengths, kept + 1)
        expected = attend(rotate(queries, turn), rotate(keys, turn), values).flatten(2)
        past = attend.after
        rows = step([slot], [frames], [index == 0], seen)
        assert_close(run(qkv, window, rows, layer=0), expected, atol=ATOL, rtol=ATOL)
        place += frames
        seen[slot] = place
