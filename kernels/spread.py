"""The joints of a HiFT vocoder: where branches begin, each with its own Snake, and where they meet.

Channels last; the inputs of convolutions are `Padded` buffers, whose left context is not touched.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from voxserve.kernels.padded import Padded
from voxserve.kernels.snake import SnakeWeights, snake, snake_reference

BRANCHES = 3
COLUMNS = 32
"""Columns that a program does."""


@triton.jit
def _activated(x, weights, out, stride, left, at, c, wanted, C: tl.constexpr, FAST: tl.constexpr):
    """Snake of x [M, C] into a buffer; weights [2, C], frequencies and sizes."""
    inside = c < C
    frequency = tl.load(weights + c, mask=inside, other=0.0)
    size = tl.load(weights + C + c, mask=inside, other=0.0)
    y = snake(x, frequency, size, FAST)
    to = out + (stride + left + at)[:, None] * C + c[None, :]
    tl.store(to, y.to(out.dtype.element_ty), mask=wanted)


@triton.jit(do_not_specialize=["SEG", "T", "S0", "S1", "S2", "L0", "L1", "L2"])
def _spread(
    up,
    source,
    fresh,
    raw,
    w0,
    w1,
    w2,
    out0,
    out1,
    out2,
    SEG,
    T,
    S0,
    S1,
    S2,
    L0,
    L1,
    L2,
    C: tl.constexpr,
    CP: tl.constexpr,
    BM: tl.constexpr,
    COUNT: tl.constexpr,
    LATE: tl.constexpr,
    HAS_SOURCE: tl.constexpr,
    HAS_RAW: tl.constexpr,
    FAST: tl.constexpr,
):
    t = tl.program_id(0) * BM + tl.arange(0, BM)
    b = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, CP)
    wanted = (t < T)[:, None] & (c < C)[None, :]
    column = t
    if LATE:
        column = tl.where((t == 0) & (tl.load(fresh + b) != 0), 2, t)
    x = tl.load(up + (b * SEG + column)[:, None] * C + c[None, :], mask=wanted, other=0.0)
    x = x.to(tl.float32)
    place = (b * T + t)[:, None] * C + c[None, :]
    if HAS_SOURCE:
        x += tl.load(source + place, mask=wanted, other=0.0).to(tl.float32)
    if HAS_RAW:
        tl.store(raw + place, x.to(raw.dtype.element_ty), mask=wanted)
    _activated(x, w0, out0, b * S0, L0, t, c, wanted, C, FAST)
    if COUNT > 1:
        _activated(x, w1, out1, b * S1, L1, t, c, wanted, C, FAST)
        _activated(x, w2, out2, b * S2, L2, t, c, wanted, C, FAST)


def spread(
    up: Padded,
    branches: Sequence[tuple[Tensor, Padded]],
    *,
    source: Tensor | None = None,
    raw: Tensor | None = None,
    fresh: Tensor | None = None,
) -> None:
    """x = up (+ source), as it is to `raw` and through each branch's Snake to its buffer.

    up: with a left context of 0, or of 1 and `fresh` [B] bool: then x begins with that column,
    which in fresh rows mirrors column 2, and lacks the last one. branches: one or three of
    (weights [2, C] float32, frequencies and sizes; the buffer whose step is filled). source, raw:
    [B, T, C]. Matches `spread_reference`.
    """
    assert len(branches) in (1, BRANCHES) and (up.left == 1) == (fresh is not None)
    (w0, out0), (w1, out1), (w2, out2) = (branches[i % len(branches)] for i in range(BRANCHES))
    _spread[(triton.cdiv(up.steps, COLUMNS), up.rows)](
        up.data,
        up.data if source is None else source,
        w0 if fresh is None else fresh,
        up.data if raw is None else raw,
        w0,
        w1,
        w2,
        out0.data,
        out1.data,
        out2.data,
        up.stride,
        up.steps,
        out0.stride,
        out1.stride,
        out2.stride,
        out0.left,
        out1.left,
        out2.left,
        C=up.channels,
        CP=triton.next_power_of_2(up.channels),
        BM=COLUMNS,
        COUNT=len(branches),
        LATE=fresh is not None,
        HAS_SOURCE=source is not None,
        HAS_RAW=raw is not None,
        FAST=up.data.is_cuda,
        num_warps=4,
    )


def spread_reference(
    up: Padded, weights: Sequence[Tensor], source: Tensor | None, fresh: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    """(x, each branch's activation), [B, T, C]."""
    x = up.whole[:, : up.steps].float()
    if fresh is not None:
        first = torch.where(fresh[:, None], up.whole[:, 2].float(), x[:, 0])
        x = torch.cat((first[:, None], x[:, 1:]), dim=1)
    if source is not None:
        x = x + source.float()
    kind = up.data.dtype
    return x.to(kind), [snake_reference(x, SnakeWeights(w[0], w[1])).to(kind) for w in weights]


@triton.jit(do_not_specialize=["T", "SEG", "LEFT"])
def _gather_leaky(
    a, b, c, out, slope, T, SEG, LEFT, C: tl.constexpr, CP: tl.constexpr, BM: tl.constexpr
):
    t = tl.program_id(0) * BM + tl.arange(0, BM)
    row = tl.program_id(1).to(tl.int64)
    n = tl.arange(0, CP)
    wanted = (t < T)[:, None] & (n < C)[None, :]
    at = (row * T + t)[:, None] * C + n[None, :]
    x = tl.load(a + at, mask=wanted, other=0.0).to(tl.float32)
    x += tl.load(b + at, mask=wanted, other=0.0).to(tl.float32)
    x += tl.load(c + at, mask=wanted, other=0.0).to(tl.float32)
    x = x / 3
    x = tl.where(x > 0, x, x * slope)
    to = out + (row * SEG + LEFT + t)[:, None] * C + n[None, :]
    tl.store(to, x.to(out.dtype.element_ty), mask=wanted)


def gather_leaky(parts: Sequence[Tensor], slope: float, out: Padded) -> None:
    """The mean of three tensors [B, T, C] through a leaky ReLU into the buffer's step.

    Matches `gather_leaky_reference`.
    """
    a, b, c = parts
    _gather_leaky[(triton.cdiv(out.steps, COLUMNS), out.rows)](
        a,
        b,
        c,
        out.data,
        slope,
        out.steps,
        out.stride,
        out.left,
        C=out.channels,
        CP=triton.next_power_of_2(out.channels),
        BM=COLUMNS,
        num_warps=4,
    )


def gather_leaky_reference(parts: Sequence[Tensor], slope: float) -> Tensor:
    mean = torch.stack([part.float() for part in parts]).mean(dim=0)
    return functional.leaky_relu(mean, slope).to(parts[0].dtype)
