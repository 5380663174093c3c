"""The two ends of a codec's launch: convolution states and codes in, convolution states out.

All `Padded` buffers of a launch lie in one arena, so one kernel moves the left contexts of all of
them from the requests' slots, and one moves those behind the step back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxserve.kernels.padded import Padded
from voxserve.kernels.window_attention import StepRows

BLOCK = 1024
UNIT = 8
"""Every offset and size is a multiple of so many values, so that copies can be wide."""
_ALIGN_BYTES = 128


@triton.jit
def _offset(table, i, column: tl.constexpr):
    return tl.multiple_of(tl.load(table + i * 5 + column), 8)


@triton.jit(do_not_specialize=["BLOCKS", "F", "OUT_SEG", "OUT_H"])
def _begin(
    table,
    arena,
    state,
    slots,
    fresh,
    codes,
    vectors,
    out,
    STATE,
    BLOCKS,
    F,
    OUT_SEG,
    OUT_H,
    K: tl.constexpr,
    CODES: tl.constexpr,
    WIDTH: tl.constexpr,
    WP: tl.constexpr,
    BLK: tl.constexpr,
):
    i = tl.program_id(0)
    b = tl.program_id(1)
    if i < BLOCKS:
        o = tl.arange(0, BLK)
        inside = o < _offset(table, i, 4)
        kept = inside & (tl.load(fresh + b) == 0)
        held = state + tl.load(slots + b) * STATE + _offset(table, i, 3)
        value = tl.load(held + o, mask=kept, other=0.0)
        to = arena + _offset(table, i, 0) + b * _offset(table, i, 1)
        tl.store(to + o, value, mask=inside)
    else:
        f = i - BLOCKS
        c = tl.arange(0, WP)
        total = tl.zeros((WP,), dtype=tl.float32)
        for k in tl.static_range(K):
            code = tl.load(codes + (b * F + f) * K + k).to(tl.int64)
            code = tl.minimum(tl.maximum(code, 0), CODES - 1) + k * CODES
            vector = tl.load(vectors + code * WIDTH + c, mask=c < WIDTH, other=0.0)
            total += vector.to(tl.float32)
        at = (b * OUT_SEG + OUT_H + f).to(tl.int64) * WIDTH + c
        tl.store(out + at, total.to(out.dtype.element_ty), mask=c < WIDTH)


@triton.jit
def _end(table, arena, state, slots, seen, fresh, lengths, STATE, BLK: tl.constexpr):
    i = tl.program_id(0)
    b = tl.program_id(1)
    o = tl.arange(0, BLK)
    inside = o < _offset(table, i, 4)
    slot = tl.load(slots + b)
    length = tl.load(lengths + b)
    source = arena + _offset(table, i, 0) + b * _offset(table, i, 1)
    source += length * _offset(table, i, 2)
    value = tl.load(source + o, mask=inside, other=0.0)
    tl.store(state + slot * STATE + _offset(table, i, 3) + o, value, mask=inside)
    if i == 0:
        before = tl.where(tl.load(fresh + b) != 0, 0, tl.load(seen + slot))
        tl.store(seen + slot, before + length)


@dataclass(frozen=True, slots=True)
class Part:
    """One buffer's share of the state: `left` columns of `channels`, of which a frame makes
    `columns`. wide: its values are float32 whatever the model's dtype."""

    left: int
    channels: int
    columns: int
    wide: bool = False


class StateLayout:
    """Where the buffers of a launch of B rows and F frames lie in an arena, and their states in a
    slot. Made once for a bucket, outside any capture.

    size: values of the arena. state: values of a slot's state, in `parts`' order, column by column.
    frames: F.
    """

    def __init__(
        self, parts: Sequence[Part], rows: int, frames: int, *, dtype: torch.dtype, device: str
    ) -> None:
        self._parts, self._rows, self.frames = tuple(parts), rows, frames
        self._starts: list[int] = []
        table: list[tuple[int, ...]] = []
        align = _ALIGN_BYTES // dtype.itemsize
        self.size = self.state = 0
        for part in parts:
            units = part.channels * (4 // dtype.itemsize if part.wide else 1)
            stride = (part.left + part.columns * frames) * units
            for first in range(0, part.left * units, BLOCK):
                count = min(BLOCK, part.left * units - first)
                per_frame = part.columns * units
                at = (self.size + first, stride, per_frame, self.state + first, count)
                table.append(at)
            self._starts.append(self.size)
            self.size += -(-rows * stride // align) * align
            self.state += part.left * units
        assert all(number % UNIT == 0 for line in table for number in line)
        self.table = torch.tensor(table, dtype=torch.int64, device=device)

    def buffers(self, arena: Tensor) -> list[Padded]:
        """The buffers in an arena [size], views."""
        buffers = []
        for part, start in zip(self._parts, self._starts, strict=True):
            steps = part.columns * self.frames
            units = part.channels * (4 // arena.element_size() if part.wide else 1)
            count = self._rows * (part.left + steps)
            data = arena[start : start + count * units]
            data = data.view(torch.float32) if part.wide else data
            buffers.append(Padded(data.view(count, part.channels), self._rows, part.left, steps))
        return buffers


def begin(
    layout: StateLayout,
    arena: Tensor,
    state: Tensor,
    rows: StepRows,
    codes: Tensor,
    vectors: Tensor,
) -> None:
    """Put each buffer's left context into the arena, and what the codes stand for into the first.

    state: [slots + 1, >= layout.state]; of fresh rows it counts as zero. codes: [B, F, K] int64,
    clamped into range. vectors: [K, codes, channels] of each code, already projected. Matches
    `begin_reference`.
    """
    assert state.shape[1] % UNIT == 0 and state.shape[1] >= layout.state
    first = layout.buffers(arena)[0]
    count, frames, books = codes.shape
    blocks = len(layout.table)
    _begin[(blocks + frames, count)](
        layout.table,
        arena,
        state,
        rows.slots,
        rows.fresh,
        codes,
        vectors,
        first.data,
        state.shape[1],
        blocks,
        frames,
        first.stride,
        first.left,
        K=books,
        CODES=vectors.shape[1],
        WIDTH=first.channels,
        WP=triton.next_power_of_2(first.channels),
        BLK=BLOCK,
        num_warps=4,
    )


def end(layout: StateLayout, arena: Tensor, state: Tensor, rows: StepRows) -> None:
    """Put what is now left of each row's next frame into its slot and advance `rows.seen`, both in
    place. Matches `end_reference`."""
    _end[(len(layout.table), len(rows.slots))](
        layout.table,
        arena,
        state,
        rows.slots,
        rows.seen,
        rows.fresh,
        rows.lengths,
        state.shape[1],
        BLK=BLOCK,
        num_warps=4,
    )


def begin_reference(
    layout: StateLayout,
    arena: Tensor,
    state: Tensor,
    rows: StepRows,
    codes: Tensor,
    vectors: Tensor,
) -> None:
    used = 0
    held = state[rows.slots].masked_fill(rows.fresh[:, None], 0)
    buffers = layout.buffers(arena)
    for buffer in buffers:
        flat = buffer.whole[:, : buffer.left].flatten(1).view(arena.dtype)
        count = flat.shape[1]
        context = held[:, used : used + count].contiguous().view(buffer.data.dtype)
        buffer.whole[:, : buffer.left] = context.view(-1, buffer.left, buffer.channels)
        used += count
    books, size, _ = vectors.shape
    book = torch.arange(books, device=codes.device)
    chosen = vectors[book, codes.clamp(0, size - 1)]
    buffers[0].step[...] = chosen.float().sum(dim=2).to(arena.dtype)


def end_reference(layout: StateLayout, arena: Tensor, state: Tensor, rows: StepRows) -> None:
    buffers = layout.buffers(arena)
    frames = layout.frames
    for b, slot in enumerate(rows.slots.tolist()):
        length = int(rows.lengths[b])
        parts = []
        for buffer in buffers:
            first = length * buffer.steps // frames
            parts.append(buffer.whole[b, first : first + buffer.left].flatten().view(arena.dtype))
        state[slot] = torch.cat(parts)
        rows.seen[slot] = length + (0 if rows.fresh[b] else int(rows.seen[slot]))
