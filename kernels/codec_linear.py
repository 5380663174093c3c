"""Linear layers over few rows with what stands around them: RMSNorm in front; SwiGLU, GELU,
residual and placing into a `Padded` buffer behind.

The norm costs no pass of its own: its weight is folded into the matrix, the sum of squares is
gathered from the blocks that the product reads anyway, and the scale is applied to the result.
Tall tiles are multiplied asynchronously, and Triton (3.6 at least) then refills the buffer of a
block that registers have read too although the product is still reading it: there the squares take
reads of their own.
"""

from dataclasses import dataclass
from enum import Enum

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from voxserve.kernels.padded import Padded
from voxserve.kernels.tiles import fixed, sms

ASYNC_ROWS = 64
"""Rows of a tile from which a product of four warps is asynchronous on Hopper."""


class Behind(Enum):
    """What happens to the product. SWIGLU: the matrix holds gate and up, [2 * outputs, inputs]."""

    NOTHING = 0
    GELU = 1
    SWIGLU = 2


@triton.jit(do_not_specialize=["R", "T", "RES_SEG", "RES_H", "OUT_SEG", "OUT_H"])
def _codec_linear(
    x,
    w,
    bias,
    res,
    out,
    eps,
    R,
    T,
    RES_SEG,
    RES_H,
    OUT_SEG,
    OUT_H,
    U: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ASYNC: tl.constexpr,
    NORM: tl.constexpr,
    BEHIND: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RES: tl.constexpr,
):
    pid = tl.program_id(0)
    NT: tl.constexpr = (N + BN - 1) // BN
    r = (pid // NT) * BM + tl.arange(0, BM)
    n = (pid % NT) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    inside = n < N
    x_at = x + r.to(tl.int64)[:, None] * K + k[None, :]
    w_at = w + n.to(tl.int64)[None, :] * K + k[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    gate = tl.zeros((BM, BN), dtype=tl.float32)
    squares = tl.zeros((BM,), dtype=tl.float32)
    for i in range(K // BK):
        a = tl.load(x_at + i * BK, mask=(r < R)[:, None], other=0.0)
        p = tl.load(w_at + i * BK, mask=inside[None, :], other=0.0)
        if BEHIND == 2:
            gate = tl.dot(a, p, gate)
            p = tl.load(w_at + N * K + i * BK, mask=inside[None, :], other=0.0)
        acc = tl.dot(a, p, acc)
        if NORM and not ASYNC:
            wide = a.to(tl.float32)
            squares += tl.sum(wide * wide, axis=1)
    if NORM and ASYNC:
        for i in tl.static_range(K // BK):
            wide = tl.load(x_at + i * BK, mask=(r < R)[:, None], other=0.0).to(tl.float32)
            squares += tl.sum(wide * wide, axis=1)
    if NORM:
        scale = tl.rsqrt(squares / K + eps)[:, None]
        acc = acc * scale
        gate = gate * scale
    if HAS_BIAS:
        acc += tl.load(bias + n, mask=inside, other=0.0)[None, :]
    if BEHIND == 1:
        acc = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))
    if BEHIND == 2:
        acc = gate * tl.sigmoid(gate) * acc
    b = r // T
    t = r - b * T
    m = (r < R)[:, None] & inside[None, :]
    if HAS_RES:
        at = (b * RES_SEG + RES_H + t).to(tl.int64)[:, None] * N + n[None, :]
        acc += tl.load(res + at, mask=m, other=0.0).to(tl.float32)
    at = (b * OUT_SEG + OUT_H + t * U).to(tl.int64)[:, None] * (N // U) + n[None, :]
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=m)


@dataclass(frozen=True, slots=True)
class LinearWeights:
    """weight: [outputs, inputs], or [2 * outputs, inputs] in front of SwiGLU. bias: [outputs]
    float32 or None, not with SwiGLU. eps: of an RMSNorm in front, whose weight is folded in; None
    for no norm. up: consecutive output columns that one row of outputs is cut into."""

    weight: Tensor
    bias: Tensor | None = None
    eps: float | None = None
    behind: Behind = Behind.NOTHING
    up: int = 1


def _tile(rows: int, columns: int, inputs: int, behind: Behind) -> tuple[int, int, int]:
    """Rows, columns and depth of a block's product: as many columns as leave no SM idle, and as
    leave registers for what stands behind."""
    widest = 128 if behind is Behind.NOTHING else 64
    if fixed():
        return 64, 64, min(64, inputs)
    high = 16 if rows <= 16 else 32 if rows <= 32 else 64
    tall = triton.cdiv(rows, high)
    wide = 16
    while wide < widest and tall * triton.cdiv(columns, wide) > sms():
        wide *= 2
    depth = 128 if high * wide <= 2048 and inputs % 128 == 0 else min(64, inputs)
    return high, wide, depth


def codec_linear(
    x: Padded, weights: LinearWeights, out: Padded, *, residual: Padded | None = None
) -> None:
    """Fill `out`'s step with the layer's result for x [rows, steps, inputs] (no left context).

    out: steps * up columns of outputs / up channels. residual: is added, steps columns of outputs
    channels; it may be `out` itself where up is 1. Matches `linear_reference`.
    """
    gated = weights.behind is Behind.SWIGLU
    outputs, inputs = weights.weight.shape[0] // (2 if gated else 1), x.channels
    assert x.left == 0 and out.steps == x.steps * weights.up
    assert weights.bias is None or not gated
    count = x.rows * x.steps
    high, wide, depth = _tile(count, outputs, inputs, weights.behind)
    assert inputs % depth == 0
    _codec_linear[(triton.cdiv(count, high) * triton.cdiv(outputs, wide),)](
        x.data,
        weights.weight,
        x.data if weights.bias is None else weights.bias,
        x.data if residual is None else residual.data,
        out.data,
        weights.eps or 0.0,
        count,
        x.steps,
        residual.stride if residual else 0,
        residual.left if residual else 0,
        out.stride,
        out.left,
        U=weights.up,
        N=outputs,
        K=inputs,
        BM=high,
        BN=wide,
        BK=depth,
        ASYNC=high >= ASYNC_ROWS,
        NORM=weights.eps is not None,
        BEHIND=weights.behind.value,
        HAS_BIAS=weights.bias is not None,
        HAS_RES=residual is not None,
        num_warps=4,
        num_stages=4,
    )


def linear_reference(x: Tensor, weights: LinearWeights, residual: Tensor | None = None) -> Tensor:
    """x [rows, steps, inputs] -> [rows, steps * up, outputs / up], in x's dtype."""
    if weights.eps is not None:
        x = functional.rms_norm(x, x.shape[-1:], None, weights.eps)
    y = functional.linear(x, weights.weight)
    if weights.bias is not None:
        y = y + weights.bias.to(y.dtype)
    if weights.behind is Behind.GELU:
        y = functional.gelu(y)
    if weights.behind is Behind.SWIGLU:
        gate, up = y.chunk(2, dim=-1)
        y = functional.silu(gate) * up
    if residual is not None:
        y = y + residual
    rows, steps, outputs = y.shape
    return y.reshape(rows, steps * weights.up, outputs // weights.up)


def pack_transposed_apart(weight: Tensor) -> Tensor:
    """[inputs, outputs, stride] of a transposed convolution whose kernel is its stride -> the
    matrix [stride * outputs, inputs] of a layer with up = stride."""
    return weight.permute(2, 1, 0).flatten(0, 1).contiguous()


def float_bias(bias: Tensor, up: int = 1) -> Tensor:
    """A bias as the kernel takes it, once for every column that a row is cut into."""
    return bias.to(torch.float32).repeat(up)
