"""Linear maps between layer norms whose scales and shifts follow a clock, and gates behind them.

The map behind a norm wants (residual - mean) / deviation * scale + shift. Mean and deviation are
two numbers a row, so what is stored is residual * scale, beside the moments, and the map corrects
its product: (x w^T - mean * w scale) / deviation + w shift. What depends on the clock alone,
`w scale` and `w shift`, is a table. No norm, gate or sum is a kernel of its own.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from voxserve.kernels.linear_plans import Plan
from voxserve.kernels.tiles import sms

ENTERED = 64
"""Most columns of a part of an entering stream's moments."""
SHARED_BYTES = 200 * 1024
MOST_STAGES = 8
EFFICIENCY = {
    (64, 16): 0.12,
    (64, 32): 0.35,
    (64, 64): 0.55,
    (64, 128): 0.75,
    (128, 64): 0.7,
    (128, 128): 0.9,
}
"""Share of the matrix units that tiles of so many rows and columns keep busy, as a guess."""


@dataclass(frozen=True, slots=True)
class Modulated:
    """x [R, C]: residual * scale, in the weights' dtype. residual [R, C] float32. moments [R, P, 2]
    float32: mean, and sum of squares around it, of the residual's C / P columns of each part."""

    x: Tensor
    residual: Tensor
    moments: Tensor


@dataclass(frozen=True, slots=True)
class Behind:
    """What one norm makes of the map behind it, at one time. scaled [N] float32: the map of the
    scales. shifted [N] float32: of the shifts, and its bias."""

    scaled: Tensor
    shifted: Tensor


@triton.jit
def _product(
    a,
    w,
    rows,
    columns,
    K: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """[M, N] float32 of a [*, K] at `rows` [M] times w [*, K] at `columns` [N]."""
    k = tl.arange(0, BK)
    left = a + rows.to(tl.int64)[:, None] * K + k[None, :]
    right = w + columns.to(tl.int64)[None, :] * K + k[:, None]
    total = tl.zeros((rows.shape[0], columns.shape[0]), tl.float32)
    for at in tl.range(0, K, BK, num_stages=STAGES):
        total = tl.dot(tl.load(left + at), tl.load(right + at), total)
    return total


@triton.jit(do_not_specialize=["R"])
def _normed_linear(
    x,
    w,
    moments,
    scaled,
    shifted,
    out,
    eps,
    R,
    N: tl.constexpr,
    K: tl.constexpr,
    PARTS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
    GELU: tl.constexpr,
):
    blocks = tl.cdiv(R, BM)
    r = (tl.program_id(0) % blocks) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) // blocks) * BN + tl.arange(0, BN)
    rows = tl.minimum(r, R - 1)
    value = _product(x, w, rows, n, K, BK, STAGES)
    part = tl.arange(0, PARTS)
    at = moments + (rows[:, None] * PARTS + part[None, :]) * 2
    means, squares = tl.load(at), tl.load(at + 1)
    mean = tl.sum(means, axis=1) / PARTS
    off = means - mean[:, None]
    variance = (tl.sum(squares, axis=1) + tl.sum(off * off, axis=1) * (K // PARTS)) / K
    value -= mean[:, None] * tl.load(scaled + n)[None, :]
    value = value * tl.rsqrt(variance + eps)[:, None] + tl.load(shifted + n)[None, :]
    if GELU:
        inner = 1.5957691216057308 * (value + 0.044715 * value * value * value)
        value = value * tl.sigmoid(inner)
    to = out + r.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(to, value.to(out.dtype.element_ty), mask=(r < R)[:, None] & (n >= 0)[None, :])


@triton.jit
def _put(value, r, n, part, there, scale, x, residual, moments, C: tl.constexpr, P: tl.constexpr):
    """Store one part [M, C / P] of rows of a stream."""
    at = r.to(tl.int64)[:, None] * C + n[None, :]
    wanted = there[:, None] & (n >= 0)[None, :]
    tl.store(residual + at, value, mask=wanted)
    scaled = value * tl.load(scale + n).to(tl.float32)[None, :]
    tl.store(x + at, scaled.to(x.dtype.element_ty), mask=wanted)
    mean = tl.sum(value, axis=1) / (C // P)
    off = value - mean[:, None]
    line = moments + (r * P + part) * 2
    tl.store(line, mean, mask=there)
    tl.store(line + 1, tl.sum(off * off, axis=1), mask=there)


@triton.jit(do_not_specialize=["R"])
def _gated_linear(
    a,
    w,
    bias,
    gate,
    scale,
    x,
    residual,
    moments,
    R,
    C: tl.constexpr,
    K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    blocks = tl.cdiv(R, BM)
    part = tl.program_id(0) // blocks
    r = (tl.program_id(0) % blocks) * BM + tl.arange(0, BM)
    n = part * BN + tl.arange(0, BN)
    rows = tl.minimum(r, R - 1)
    value = _product(a, w, rows, n, K, BK, STAGES)
    value += tl.load(bias + n).to(tl.float32)[None, :]
    value *= tl.load(gate + n).to(tl.float32)[None, :]
    value += tl.load(residual + rows.to(tl.int64)[:, None] * C + n[None, :])
    _put(value, r, n, part, r < R, scale, x, residual, moments, C, C // BN)


@triton.jit(do_not_specialize=["R"])
def _enter(
    y,
    scale,
    x,
    residual,
    moments,
    R,
    C: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    part = tl.program_id(1)
    r, n = tl.program_id(0) * BM + tl.arange(0, BM), part * BN + tl.arange(0, BN)
    there = r < R
    at = r.to(tl.int64)[:, None] * C + n[None, :]
    value = tl.load(y + at, mask=there[:, None], other=0.0).to(tl.float32)
    _put(value, r, n, part, there, scale, x, residual, moments, C, C // BN)


def enter(y: Tensor, scale: Tensor) -> Modulated:
    """The stream that begins with y [R, C], for a norm with that scale [C]."""
    rows, width = y.shape
    wide = min(ENTERED, width & -width)
    moments = y.new_empty(rows, width // wide, 2, dtype=torch.float32)
    residual = y.new_empty(rows, width, dtype=torch.float32)
    out = Modulated(torch.empty_like(y), residual, moments)
    tall = 16
    grid = (triton.cdiv(rows, tall), width // wide)
    _enter[grid](
        y,
        scale,
        out.x,
        out.residual,
        moments,
        rows,
        width,
        tall,
        wide,
        num_warps=4,
    )
    return out


def normed_linear(
    stream: Modulated,
    w: Tensor,
    behind: Behind,
    eps: float,
    *,
    gelu: bool = False,
    tiles: Plan | None = None,
) -> Tensor:
    """w [N, C] behind the layer norm of the stream, then a GELU (of the tanh kind): [R, N].

    The norm's scale is that which the stream was made with. Matches `normed_linear_reference`.
    """
    rows, (columns, depth) = stream.x.shape[0], w.shape
    cut = tiles or plan(rows, columns, depth)
    out = stream.x.new_empty(rows, columns)
    _normed_linear[(triton.cdiv(rows, cut.rows) * (columns // cut.columns),)](
        stream.x,
        w,
        stream.moments,
        behind.scaled,
        behind.shifted,
        out,
        eps,
        rows,
        columns,
        depth,
        stream.moments.shape[1],
        cut.rows,
        cut.columns,
        cut.depth,
        cut.stages,
        gelu,
        num_warps=cut.warps,
    )
    return out


def gated_linear(
    a: Tensor,
    w: Tensor,
    bias: Tensor,
    gate: Tensor,
    stream: Modulated,
    scale: Tensor,
    *,
    tiles: Plan | None = None,
) -> Modulated:
    """The stream plus gate * (w a + bias), for a norm with that scale; x and residual are updated
    in place. a [R, K]; w [C, K]; bias, gate, scale [C]. Matches `gated_linear_reference`."""
    rows, (columns, depth) = a.shape[0], w.shape
    cut = tiles or plan(rows, columns, depth)
    moments = stream.moments.new_empty(rows, columns // cut.columns, 2)
    _gated_linear[(triton.cdiv(rows, cut.rows) * (columns // cut.columns),)](
        a,
        w,
        bias,
        gate,
        scale,
        stream.x,
        stream.residual,
        moments,
        rows,
        columns,
        depth,
        cut.rows,
        cut.columns,
        cut.depth,
        cut.stages,
        num_warps=cut.warps,
    )
    return Modulated(stream.x, stream.residual, moments)


def plan(rows: int, columns: int, depth: int) -> Plan:
    """The tiles of the least time, by rounds of the SMs and what a tile's size is worth."""
    best: tuple[float, int, int] | None = None
    for (tall, wide), share in EFFICIENCY.items():
        if columns % wide:
            continue
        rounds = triton.cdiv(triton.cdiv(rows, tall) * (columns // wide), sms())
        cost = rounds * tall * wide / share
        if best is None or cost < best[0]:
            best = cost, tall, wide
    assert best is not None, "16 divides the columns"
    return of_size(best[1], best[2], depth)


def of_size(tall: int, wide: int, depth: int) -> Plan:
    """Tiles of that size. Two programs share an SM, or one of large tiles has it."""
    deep, large = min(64, depth & -depth), tall * wide > 64 * 128
    room = SHARED_BYTES if large else SHARED_BYTES // 2
    stages = min(MOST_STAGES, room // ((tall + wide) * deep * 2))
    return Plan(tall, wide, deep, 1, stages, 8 if large else 4)


def table(w: Tensor, bias: Tensor, scales: Tensor, shifts: Tensor) -> list[Behind]:
    """Of a map [N, C] with its bias [N] behind a norm with scales and shifts [S, C] at S times."""
    wide = w.float()
    scaled, shifted = scales.float() @ wide.T, shifts.float() @ wide.T + bias.float()
    return [Behind(*both) for both in zip(scaled, shifted, strict=True)]


def normed_linear_reference(
    residual: Tensor, w: Tensor, bias: Tensor, scale: Tensor, shift: Tensor, eps: float, gelu: bool
) -> Tensor:
    """[R, N] float32 of a residual [R, C] float32."""
    width = residual.shape[1:]
    y = functional.layer_norm(residual, width, scale.float(), shift.float(), eps)
    y = functional.linear(y, w.float(), bias.float())
    return functional.gelu(y, approximate="tanh") if gelu else y


def gated_linear_reference(
    a: Tensor, w: Tensor, bias: Tensor, gate: Tensor, residual: Tensor
) -> Tensor:
    """The new residual [R, C] float32."""
    return residual + gate.float() * functional.linear(a.float(), w.float(), bias.float())
