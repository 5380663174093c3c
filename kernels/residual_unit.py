"""A whole residual unit of a vocoder: dilated convolution, SnakeBeta, 1x1 convolution, residual,
and the next layer's SnakeBeta; for few channels, where memory is the limit and not products.

The channels C (96 or 192) are no power of two, so every product is done for two parts of them. The
last unit of a decoder multiplies its output with the taps of the last convolution instead of
storing it: eight float32 products a column instead of C values (`last_conv`).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxserve.kernels.conv_gemm import ConvWeights, conv_reference, descriptor
from voxserve.kernels.padded import Padded
from voxserve.kernels.snake import SnakeWeights, snake
from voxserve.kernels.tiles import fixed, sms

PARTS = {96: 64, 192: 128}
"""The first of the two parts by channels."""
TAPS = 7
LAST_COLUMNS = 8
"""Float32 values that the last unit stores for a column, one for each tap and one of zero."""


@triton.jit
def _inner(acc, bias, frequency, size, c, FAST: tl.constexpr):
    x = acc + tl.load(bias + c)[None, :]
    return snake(x, tl.load(frequency + c), tl.load(size + c), FAST)


@triton.jit
def _outer(y, bias, frequency, size, c, res, out_raw, m, HAS_RAW: tl.constexpr, FAST: tl.constexpr):
    """Bias, residual and activation of channels c; stores the plain result where asked."""
    kind = res.dtype.element_ty
    y += tl.load(bias + c)[None, :]
    y += tl.load(res + c[None, :], mask=m, other=0.0).to(tl.float32)
    if HAS_RAW:
        tl.store(out_raw + c[None, :], y.to(kind), mask=m)
    return snake(y, tl.load(frequency + c), tl.load(size + c), FAST).to(kind)


@triton.jit(do_not_specialize=["R", "SEG", "T", "OUT_SEG", "OUT_H", "DIL"])
def _residual_unit(
    a64,
    a32,
    wa64,
    wb64,
    wa32,
    wb32,
    va1,
    va2,
    vb1,
    vb2,
    bias1,
    f1,
    s1,
    bias2,
    f2,
    s2,
    res,
    out_raw,
    out_act,
    last,
    R,
    SEG,
    T,
    OUT_SEG,
    OUT_H,
    DIL,
    C: tl.constexpr,
    C1: tl.constexpr,
    C2: tl.constexpr,
    BM: tl.constexpr,
    NK: tl.constexpr,
    TAIL: tl.constexpr,
    HAS_RAW: tl.constexpr,
    LAST: tl.constexpr,
    FAST: tl.constexpr,
):
    r0 = tl.program_id(0) * BM
    acc1 = tl.zeros((BM, C1), dtype=tl.float32)
    acc2 = tl.zeros((BM, C2), dtype=tl.float32)
    if TAIL:
        for tap in range(7):
            row = r0 + tap * DIL
            a = a64.load([row, 0])
            e = a32.load([row, 64])
            acc1 = tl.dot(a, wa64.load([0, tap * C]).T, acc1)
            acc2 = tl.dot(a, wb64.load([C1, tap * C]).T, acc2)
            acc1 = tl.dot(e, wa32.load([0, tap * C + 64]).T, acc1)
            acc2 = tl.dot(e, wb32.load([C1, tap * C + 64]).T, acc2)
    else:
        for i in range(7 * NK):
            tap = i // NK
            a = a64.load([r0 + tap * DIL, (i - tap * NK) * 64])
            acc1 = tl.dot(a, wa64.load([0, i * 64]).T, acc1)
            acc2 = tl.dot(a, wb64.load([C1, i * 64]).T, acc2)
    c1 = tl.arange(0, C1)
    c2 = C1 + tl.arange(0, C2)
    x1 = _inner(acc1, bias1, f1, s1, c1, FAST).to(res.dtype.element_ty)
    x2 = _inner(acc2, bias1, f1, s1, c2, FAST).to(res.dtype.element_ty)
    r = r0 + tl.arange(0, BM)
    b = r // SEG
    t = r - b * SEG
    m = ((t < T) & (r < R))[:, None]
    raw = ((b * T + t).to(tl.int64) * C)[:, None]
    at = ((b * OUT_SEG + OUT_H + t).to(tl.int64) * C)[:, None]
    k = tl.arange(0, 16)
    y1 = tl.dot(x1, va1.load([0, 0]).T)
    y1 = tl.dot(x2, va2.load([0, C1]).T, y1)
    z1 = _outer(y1, bias2, f2, s2, c1, res + raw, out_raw + raw, m, HAS_RAW, FAST)
    if LAST:
        q = tl.dot(z1, tl.load(last + k[None, :] * C + c1[:, None]))
    else:
        tl.store(out_act + at + c1[None, :], z1, mask=m)
    y2 = tl.dot(x1, vb1.load([C1, 0]).T)
    y2 = tl.dot(x2, vb2.load([C1, C1]).T, y2)
    z2 = _outer(y2, bias2, f2, s2, c2, res + raw, out_raw + raw, m, HAS_RAW, FAST)
    if LAST:
        q = tl.dot(z2, tl.load(last + k[None, :] * C + c2[:, None]), q)
        at = ((b * OUT_SEG + OUT_H + t).to(tl.int64) * 8)[:, None]
        tl.store(out_act + at + k[None, :], q, mask=m & (k < 8)[None, :])
    else:
        tl.store(out_act + at + c2[None, :], z2, mask=m)


@dataclass(frozen=True, slots=True)
class UnitWeights:
    """first: the dilated convolution of 7 taps; inner: the activation behind it; second: the 1x1
    convolution; outer: the activation in front of what follows the unit.

    last: None, or the last convolution's taps [16, C], rows 7 on zero.
    """

    first: ConvWeights
    inner: SnakeWeights
    second: ConvWeights
    outer: SnakeWeights
    last: Tensor | None = None


def residual_unit(
    src: Padded, weights: UnitWeights, residual: Tensor, *, raw: Tensor | None, out: Padded
) -> None:
    """Run the unit over activated input `src`, of left context 6 * dilation.

    residual: [rows, steps, C], the unit's input before its first activation. raw: the same shape or
    None; is filled with the unit's output. out: its step is filled with the activated output, or in
    the last unit with float32 products [.., 8]. Matches `unit_reference`.
    """
    channels, dilation = src.channels, weights.first.dilation
    part = PARTS[channels]
    rest = channels - part
    assert src.left == (TAPS - 1) * dilation and weights.first.taps == TAPS
    count = src.rows * src.stride
    available = 0 if fixed() else sms()
    high = 128 if channels == 96 and -(-count // 128) >= 0.5 * available else 64
    w1, w2 = weights.first.weight, weights.second.weight
    _residual_unit[(triton.cdiv(count, high),)](
        descriptor(src.data, high, 64),
        descriptor(src.data, high, 32),
        descriptor(w1, part, 64),
        descriptor(w1, rest, 64),
        descriptor(w1, part, 32),
        descriptor(w1, rest, 32),
        descriptor(w2, part, part),
        descriptor(w2, part, rest),
        descriptor(w2, rest, part),
        descriptor(w2, rest, rest),
        weights.first.bias,
        weights.inner.frequency,
        weights.inner.size,
        weights.second.bias,
        weights.outer.frequency,
        weights.outer.size,
        residual,
        residual if raw is None else raw,
        out.data,
        w1 if weights.last is None else weights.last,
        count,
        src.stride,
        src.steps,
        out.stride,
        out.left,
        dilation,
        C=channels,
        C1=part,
        C2=rest,
        BM=high,
        NK=channels // 64,
        TAIL=channels % 64 != 0,
        HAS_RAW=raw is not None,
        LAST=weights.last is not None,
        FAST=src.data.is_cuda,
        num_warps=4,
        num_stages=2 if channels == 96 else 3,
    )


def unit_reference(src: Padded, weights: UnitWeights, residual: Tensor) -> tuple[Tensor, Tensor]:
    """(plain, activated) output, each [rows, steps, C]; in the last unit the second is float32
    [rows, steps, 8]."""
    _, inner = conv_reference(src, weights.first, snake_weights=weights.inner)
    assert inner is not None
    middle = Padded(inner.flatten(0, 1), src.rows, 0, src.steps)
    plain, activated = conv_reference(
        middle, weights.second, residual=residual, snake_weights=weights.outer
    )
    assert activated is not None
    if weights.last is not None:
        return plain, activated.float() @ weights.last[:LAST_COLUMNS].float().T
    return plain, activated


def pack_last(weight: Tensor) -> Tensor:
    """[1, C, 7] as `conv1d` takes it -> [16, C], as the last unit takes it."""
    packed = torch.zeros(16, weight.shape[1], device=weight.device, dtype=weight.dtype)
    packed[:TAPS] = weight[0].T
    return packed
