"""Linear maps of few rows, with what stands before and behind them in a decoder layer fused in.

Weights are [N, K] as in `torch.nn.functional.linear`; inputs have `stream.padded` rows. Sums over
split parts of K run in a fixed order, so a result never depends on timing; with `tiles.fixed` it
does not depend on the batch or the SMs either.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxserve.kernels.linear_plans import Plan, plan
from voxserve.kernels.stream import Stream, reference_scale, row_scale


@triton.jit
def _product(
    a,
    w,
    row,
    column,
    start,
    DEPTH: tl.constexpr,
    PART: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """[BM, BN] float32 of a [*, DEPTH] from `row` on times w [*, DEPTH] from `column` on, over
    PART of K from `start` on."""
    k = tl.arange(0, BK)
    rows = (row + tl.arange(0, BM)).to(tl.int64)
    columns = (column + tl.arange(0, BN)).to(tl.int64)
    left = a + rows[:, None] * DEPTH + (start + k)[None, :]
    right = w + columns[None, :] * DEPTH + (start + k)[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for at in tl.range(0, PART, BK, num_stages=STAGES):
        total = tl.dot(tl.load(left + at), tl.load(right + at), total)
    return total


@triton.jit
def _linear(
    a,
    w,
    bias,
    squares,
    out,
    height,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PARTS: tl.constexpr,
    BIAS: tl.constexpr,
    EPS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    # Programs that share weights stand next to each other, so that the second finds them in L2.
    blocks = height // BM
    row, column = (tl.program_id(0) % blocks) * BM, (tl.program_id(0) // blocks) * BN
    value = _product(a, w, row, column, 0, DEPTH, DEPTH, BM, BN, BK, STAGES)
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    if PARTS > 0:
        value *= row_scale(squares, rows, DEPTH, PARTS, EPS)[:, None]
    if BIAS:
        value += tl.load(bias + columns).to(tl.float32)[None, :]
    at = rows.to(tl.int64)[:, None] * COLUMNS + columns[None, :]
    tl.store(out + at, value.to(out.dtype.element_ty))


def linear(
    a: Tensor,
    w: Tensor,
    *,
    bias: Tensor | None = None,
    squares: Tensor | None = None,
    eps: float = 0.0,
    dtype: torch.dtype | None = None,
    tiles: Plan | None = None,
) -> Tensor:
    """a [R, K] times w [N, K] -> [R, N] of `dtype` (a's own).

    squares: of the stream that a is the x of, to divide by its rms. R is `padded`.
    """
    height, (columns, depth) = a.shape[0], w.shape
    cut = tiles or plan("linear", columns, depth, height)
    out = a.new_empty(height, columns, dtype=dtype)
    _linear[(height // cut.rows * (columns // cut.columns),)](
        a,
        w,
        a if bias is None else bias,
        a if squares is None else squares,
        out,
        height,
        columns,
        depth,
        0 if squares is None else squares.shape[1],
        bias is not None,
        eps,
        cut.rows,
        cut.columns,
        cut.depth,
        cut.stages,
        num_warps=cut.warps,
    )
    return out


@triton.jit
def _gate_up(
    a,
    w,
    squares,
    out,
    height,
    INNER: tl.constexpr,
    DEPTH: tl.constexpr,
    PARTS: tl.constexpr,
    EPS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    blocks = height // BM
    row, column = (tl.program_id(0) % blocks) * BM, (tl.program_id(0) // blocks) * BN
    k = tl.arange(0, BK)
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    left = a + rows.to(tl.int64)[:, None] * DEPTH + k[None, :]
    right = w + columns.to(tl.int64)[None, :] * DEPTH + k[:, None]
    gate = tl.zeros((BM, BN), tl.float32)
    up = tl.zeros((BM, BN), tl.float32)
    for at in tl.range(0, DEPTH, BK, num_stages=STAGES):
        part = tl.load(left + at)
        gate = tl.dot(part, tl.load(right + at), gate)
        up = tl.dot(part, tl.load(right + INNER * DEPTH + at), up)
    scale = row_scale(squares, rows, DEPTH, PARTS, EPS)[:, None]
    gate *= scale
    value = gate / (1.0 + tl.exp(-gate)) * (up * scale)
    at_out = rows.to(tl.int64)[:, None] * INNER + columns[None, :]
    tl.store(out + at_out, value.to(out.dtype.element_ty))


def gate_up(stream: Stream, w: Tensor, eps: float, tiles: Plan | None = None) -> Tensor:
    """silu(gate) * up [R, I] of a normed stream; w [2 I, H], the gate's half first."""
    height, depth = stream.x.shape
    inner = w.shape[0] // 2
    cut = tiles or plan("gate_up", inner, depth, height)
    out = stream.x.new_empty(height, inner)
    _gate_up[(height // cut.rows * (inner // cut.columns),)](
        stream.x,
        w,
        stream.squares,
        out,
        height,
        inner,
        depth,
        stream.squares.shape[1],
        eps,
        cut.rows,
        cut.columns,
        cut.depth,
        cut.stages,
        num_warps=cut.warps,
    )
    return out


@triton.jit
def _residual(
    a,
    w,
    gain,
    room,
    arrived,
    x,
    residual,
    squares,
    height,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    SPLIT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The last program to arrive at a tile adds the parts, in their order, and finishes it."""
    blocks = height // BM
    part, tile = tl.program_id(0) % SPLIT, tl.program_id(0) // SPLIT
    row, block = (tile % blocks) * BM, tile // blocks
    length: tl.constexpr = DEPTH // SPLIT
    rows, columns = row + tl.arange(0, BM), block * BN + tl.arange(0, BN)
    value = _product(a, w, row, block * BN, part * length, DEPTH, length, BM, BN, BK, STAGES)
    at = rows.to(tl.int64)[:, None] * COLUMNS + columns[None, :]
    last = True
    if SPLIT > 1:
        tl.store(room + part.to(tl.int64) * height * COLUMNS + at, value)
        tl.debug_barrier()
        last = tl.atomic_add(arrived + tile, 1, sem="acq_rel", scope="gpu") == SPLIT - 1
    if last:
        if SPLIT > 1:
            tl.store(arrived + tile, 0)
            value = tl.load(room + at, cache_modifier=".cg")
            for other in tl.static_range(1, SPLIT):
                far = other * height.to(tl.int64) * COLUMNS
                value += tl.load(room + far + at, cache_modifier=".cg")
        value += tl.load(residual + at)
        scaled = value * tl.load(gain + columns).to(tl.float32)[None, :]
        tl.store(residual + at, value)
        tl.store(x + at, scaled.to(x.dtype.element_ty))
        tl.store(squares + rows * (COLUMNS // BN) + block, tl.sum(value * value, axis=1))


def residual(
    a: Tensor, w: Tensor, stream: Stream, gain: Tensor, arrived: Tensor, tiles: Plan | None = None
) -> Stream:
    """The stream behind the branch a [R, K] times w [H, K]; x and residual are updated in place.

    gain [H]: of the norm that follows. arrived: int32 zeros, one a tile of the output at least;
    zeros again afterwards.
    """
    height, (columns, depth) = a.shape[0], w.shape
    cut = tiles or plan("residual", columns, depth, height)
    squares = stream.squares.new_empty(height, columns // cut.columns)
    room = squares if cut.split == 1 else squares.new_empty(cut.split, height, columns)
    tile_count = height // cut.rows * (columns // cut.columns)
    assert tile_count <= len(arrived)
    _residual[(tile_count * cut.split,)](
        a,
        w,
        gain,
        room,
        arrived,
        stream.x,
        stream.residual,
        squares,
        height,
        columns,
        depth,
        cut.split,
        cut.rows,
        cut.columns,
        cut.depth,
        cut.stages,
        num_warps=cut.warps,
    )
    return Stream(stream.x, stream.residual, squares)


def reference_linear(
    a: Tensor, w: Tensor, bias: Tensor | None = None, scale: Tensor | None = None
) -> Tensor:
    """`linear` in plain torch, float32; scale [R, 1]."""
    out = a.float() @ w.float().t()
    out = out if scale is None else out * scale
    return out if bias is None else out + bias.float()


def reference_gate_up(stream: Stream, w: Tensor, eps: float) -> Tensor:
    """`gate_up` in plain torch, float32."""
    gate, up = (reference_linear(stream.x, w) * reference_scale(stream, eps)).chunk(2, dim=1)
    return torch.nn.functional.silu(gate) * up
