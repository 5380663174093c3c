"""The residual stream of a decoder stack, in the form that the kernels of a layer hand on.

A layer's next linear map wants rms_norm(residual) * gain. The factor 1 / rms is one number a row
and passes through the map, so what is stored is residual * gain, beside the sums of squares; who
multiplies applies the factor behind the product (`row_scale`). No norm is a kernel of its own.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxserve.kernels import tiles

LEAST_ROWS = 16
"""Rows that a matrix unit takes at least; fewer are filled up with zeros."""
FIXED_ROWS = 64
"""Rows of every tile where results must not depend on the batch."""
ROW_STEP = 64
"""More rows are filled up to a multiple of this, fewer to a power of two."""


@dataclass(frozen=True, slots=True)
class Stream:
    """x [R, H]: residual * gain, in the weights' dtype. residual [R, H] float32.

    squares [R, S] float32: sums of residual ** 2 over the H / S columns of each part; H / S is a
    power of two.
    """

    x: Tensor
    residual: Tensor
    squares: Tensor

    def rows(self, first: int, count: int) -> "Stream":
        """A part of the rows, without a copy."""
        end = first + count
        return Stream(self.x[first:end], self.residual[first:end], self.squares[first:end])


def padded(rows: int) -> int:
    """Rows to allocate for a batch; where results are fixed, whole tiles."""
    if tiles.fixed():
        return -(-rows // FIXED_ROWS) * FIXED_ROWS
    if rows > ROW_STEP:
        return -(-rows // ROW_STEP) * ROW_STEP
    return max(LEAST_ROWS, 1 << (rows - 1).bit_length())


def new_stream(rows: int, hidden: int, parts: int, like: Tensor) -> Stream:
    """Room for a stream, zero where `rows` is filled up; dtype and device of `like`."""
    height = padded(rows)
    make = like.new_empty if rows == height else like.new_zeros
    return Stream(
        make(height, hidden),
        make(height, hidden, dtype=torch.float32),
        make(height, parts, dtype=torch.float32),
    )


def parts_of(hidden: int) -> int:
    """Parts that these kernels cut a stream into: 512 columns, or what divides a narrower one."""
    return hidden // min(512, hidden & -hidden)


@triton.jit
def row_factor(squares, row, HIDDEN: tl.constexpr, PARTS: tl.constexpr, EPS: tl.constexpr):
    """1 / rms of one row, float32."""
    part = tl.arange(0, triton.next_power_of_2(PARTS))
    sums = tl.load(squares + row * PARTS + part, mask=part < PARTS, other=0.0)
    return tl.rsqrt(tl.sum(sums, axis=0) / HIDDEN + EPS)


@triton.jit
def row_scale(squares, rows, HIDDEN: tl.constexpr, PARTS: tl.constexpr, EPS: tl.constexpr):
    """1 / rms of each of `rows` [M] -> [M] float32."""
    part = tl.arange(0, triton.next_power_of_2(PARTS))[None, :]
    sums = tl.load(squares + rows[:, None] * PARTS + part, mask=part < PARTS, other=0.0)
    return tl.rsqrt(tl.sum(sums, axis=1) / HIDDEN + EPS)


@triton.jit
def put_stream(
    value, row, columns, part, gain, x, residual, squares, HIDDEN: tl.constexpr, PARTS: tl.constexpr
):
    """Store one part of one row: value [H / S] float32 at `columns`."""
    at = row * HIDDEN + columns
    scaled = value * tl.load(gain + columns).to(tl.float32)
    tl.store(residual + at, value)
    tl.store(x + at, scaled.to(x.dtype.element_ty))
    tl.store(squares + row * PARTS + part, tl.sum(value * value, axis=0))


@triton.jit
def _embed(
    codes,
    slots,
    words,
    table,
    starts,
    text,
    gain,
    x,
    residual,
    squares,
    BOOKS: tl.constexpr,
    HIDDEN: tl.constexpr,
    PARTS: tl.constexpr,
):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    width: tl.constexpr = HIDDEN // PARTS
    columns = part * width + tl.arange(0, width)
    slot, word = tl.load(slots + row), tl.load(words + row)
    known = (columns >= 0) & (word >= 0)
    total = tl.load(text + tl.maximum(word, 0) * HIDDEN + columns, mask=known, other=0.0)
    total = total.to(tl.float32)
    for book in tl.static_range(BOOKS):
        code = tl.load(codes + slot * BOOKS + book) + tl.load(starts + book)
        total += tl.load(table + code * HIDDEN + columns).to(tl.float32)
    put_stream(total, row, columns, part, gain, x, residual, squares, HIDDEN, PARTS)


def embed_frames(
    codes: Tensor,
    slots: Tensor,
    words: Tensor,
    table: Tensor,
    starts: Tensor,
    text: Tensor,
    gain: Tensor,
) -> Stream:
    """The input of a decode step: the sum of the last frame's code embeddings and of one word.

    codes [slots + 1, K] int64; slots [B] int64; words [B] int64, below 0 for none; table [*, H]
    with codebook k from row starts[k] on; text [*, H]; gain [H].
    """
    rows, hidden = len(slots), table.shape[1]
    parts = parts_of(hidden)
    out = new_stream(rows, hidden, parts, table)
    _embed[(rows, parts)](
        codes,
        slots,
        words,
        table,
        starts,
        text,
        gain,
        out.x,
        out.residual,
        out.squares,
        codes.shape[1],
        hidden,
        parts,
        num_warps=4,
    )
    return out


@triton.jit
def _enter(
    y,
    scales,
    gain,
    x,
    residual,
    squares,
    HIDDEN: tl.constexpr,
    PARTS: tl.constexpr,
    SCALES: tl.constexpr,
    EPS: tl.constexpr,
):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    width: tl.constexpr = HIDDEN // PARTS
    columns = part * width + tl.arange(0, width)
    value = tl.load(y + row * HIDDEN + columns).to(tl.float32)
    if SCALES > 0:
        value *= row_factor(scales, row, HIDDEN, SCALES, EPS)
    put_stream(value, row, columns, part, gain, x, residual, squares, HIDDEN, PARTS)


def enter(
    y: Tensor, gain: Tensor, rows: int, scales: Tensor | None, eps: float, out: Stream | None = None
) -> Stream:
    """A stream that begins with the first `rows` rows of y [*, H].

    scales: `Stream.squares` of y where y is to be divided by its rms first. out: where to put it.
    """
    hidden = y.shape[1]
    parts = parts_of(hidden) if out is None else out.squares.shape[1]
    out = new_stream(rows, hidden, parts, y) if out is None else out
    _enter[(rows, parts)](
        y,
        y if scales is None else scales,
        gain,
        out.x,
        out.residual,
        out.squares,
        hidden,
        parts,
        0 if scales is None else scales.shape[1],
        eps,
        num_warps=4,
    )
    return out


@triton.jit
def _add(y, old, gain, x, residual, squares, HIDDEN: tl.constexpr, PARTS: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    width: tl.constexpr = HIDDEN // PARTS
    columns = part * width + tl.arange(0, width)
    at = row * HIDDEN + columns
    value = tl.load(y + at).to(tl.float32) + tl.load(old + at)
    put_stream(value, row, columns, part, gain, x, residual, squares, HIDDEN, PARTS)


def add(y: Tensor, stream: Stream, gain: Tensor) -> Stream:
    """The stream behind a branch y [R, H]; the residual is updated in place, so is x."""
    height, hidden = y.shape
    parts = parts_of(hidden)
    squares = stream.squares.new_empty(height, parts)
    _add[(height, parts)](
        y,
        stream.residual,
        gain,
        stream.x,
        stream.residual,
        squares,
        hidden,
        parts,
        num_warps=4,
    )
    return Stream(stream.x, stream.residual, squares)


@triton.jit
def _swiglu(
    y,
    squares,
    out,
    HIDDEN: tl.constexpr,
    INNER: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    EPS: tl.constexpr,
):
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    scale = row_factor(squares, row, HIDDEN, PARTS, EPS)
    gate = tl.load(y + row * 2 * INNER + columns).to(tl.float32) * scale
    up = tl.load(y + row * 2 * INNER + INNER + columns).to(tl.float32) * scale
    value = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * INNER + columns, value.to(out.dtype.element_ty))


def swiglu(y: Tensor, stream: Stream, eps: float) -> Tensor:
    """silu(gate) * up [R, I] of y [R, 2 I], gate first, that still lacks `stream`'s row factor."""
    height, inner = y.shape[0], y.shape[1] // 2
    out = y.new_empty(height, inner)
    block = min(1024, inner & -inner)
    _swiglu[(height, inner // block)](
        y,
        stream.squares,
        out,
        stream.x.shape[1],
        inner,
        block,
        stream.squares.shape[1],
        eps,
        num_warps=4,
    )
    return out


def reference_scale(stream: Stream, eps: float) -> Tensor:
    """What `row_scale` gives, [R, 1] float32, in plain torch."""
    mean = stream.squares.sum(dim=1, keepdim=True) / stream.x.shape[1]
    return torch.rsqrt(mean + eps)


def reference_stream(residual: Tensor, gain: Tensor, parts: int, dtype: torch.dtype) -> Stream:
    """The stream of a float32 residual [R, H], in plain torch."""
    squares = residual.square().unflatten(1, (parts, -1)).sum(dim=2)
    return Stream((residual * gain.float()).to(dtype), residual, squares)


def reference_frames(
    codes: Tensor, slots: Tensor, words: Tensor, table: Tensor, starts: Tensor, text: Tensor
) -> Tensor:
    """The residual [B, H] float32 that `embed_frames` starts with, in plain torch."""
    said = table[codes[slots] + starts].float().sum(dim=1)
    return said + torch.where((words >= 0)[:, None], text[words.clamp(min=0)].float(), 0.0)
