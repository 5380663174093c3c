"""Causal convolution, plain or transposed, as a product of matrices with all around it fused.

The input is a `Padded` buffer, so a tap is a shift by rows and tiles come by TMA without masks;
outputs of the left context's rows are computed and dropped. A transposed convolution of kernel 2u
and stride u is the same product with 2 taps and u times the channels: its output column (t, p) is
column t * u + p. The activation is applied once, by the producer, which therefore can store two
tensors: the plain one (a residual) and the activated one (the next convolution's input).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional
from triton.tools.tensor_descriptor import TensorDescriptor

from voxserve.kernels.padded import Padded
from voxserve.kernels.snake import SnakeWeights, snake, snake_reference
from voxserve.kernels.tiles import fixed, sms


@triton.jit(do_not_specialize=["R", "SEG", "T", "OUT_SEG", "OUT_H", "U", "DIL"])
def _conv_gemm(
    a_desc,
    w_desc,
    bias,
    frequency,
    size,
    res,
    out_raw,
    out_act,
    R,
    SEG,
    T,
    OUT_SEG,
    OUT_H,
    U,
    DIL,
    N: tl.constexpr,
    COUT: tl.constexpr,
    CIN: tl.constexpr,
    TAPS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    HAS_RES: tl.constexpr,
    HAS_RAW: tl.constexpr,
    HAS_ACT: tl.constexpr,
    FAST: tl.constexpr,
):
    pid = tl.program_id(0)
    NT: tl.constexpr = (N + BN - 1) // BN
    KB: tl.constexpr = CIN // BK
    r0 = (pid // NT) * BM
    n0 = (pid % NT) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(TAPS * KB):
        tap = i // KB
        a = a_desc.load([r0 + tap * DIL, (i - tap * KB) * BK])
        w = w_desc.load([n0, i * BK])
        acc = tl.dot(a, w.T, acc)
    n = n0 + tl.arange(0, BN)
    inside = n < N
    channel = n % COUT
    r = r0 + tl.arange(0, BM)
    b = r // SEG
    t = r - b * SEG
    m = ((t < T) & (r < R))[:, None] & inside[None, :]
    y = acc + tl.load(bias + channel, mask=inside, other=0.0)[None, :]
    raw = ((b * T + t).to(tl.int64) * N)[:, None] + n[None, :]
    if HAS_RES:
        y += tl.load(res + raw, mask=m, other=0.0).to(tl.float32)
    if HAS_RAW:
        tl.store(out_raw + raw, y.to(out_raw.dtype.element_ty), mask=m)
    if HAS_ACT:
        f = tl.load(frequency + channel, mask=inside, other=0.0)
        s = tl.load(size + channel, mask=inside, other=0.0)
        z = snake(y, f, s, FAST)
        at = ((b * OUT_SEG + OUT_H + t * U).to(tl.int64) * COUT)[:, None] + n[None, :]
        tl.store(out_act + at, z.to(out_act.dtype.element_ty), mask=m)


@dataclass(frozen=True, slots=True)
class Tile:
    """rows, columns, depth: of the block's product; warps and pipeline stages."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def tile_for(rows: int, columns: int, inputs: int, taps: int) -> Tile:
    """The tile for a product of `rows` by `columns`, depth taps * inputs.

    The thresholds were found on an H200: large tiles keep two blocks on each SM, smaller ones fill
    more SMs when there is little to do. Fixed tiles are the large ones.
    """
    depth = min(64, inputs)
    assert inputs % depth == 0
    available = 0 if fixed() else sms()
    narrow = -(-columns // 128) * 128 > 1.15 * (-(-columns // 64) * 64)
    width = 64 if narrow else 128

    def count(high: int, wide: int) -> int:
        return -(-rows // high) * -(-columns // wide)

    if taps > 1 and count(128, width) >= 0.75 * available:
        return Tile(128, width, depth, 4, 4 if narrow else 3)
    if count(64, width) >= 0.5 * available:
        return Tile(64, width, depth, 4, 4)
    if count(64, 64) >= 0.25 * available:
        return Tile(64, 64, depth, 4, 4)
    return Tile(64, 32, depth, 4, 5)


@dataclass(frozen=True, slots=True)
class ConvWeights:
    """weight: [up * outputs, taps * inputs], tap-major (`pack_conv`, `pack_transposed`); bias:
    [outputs] float32."""

    weight: Tensor
    bias: Tensor
    taps: int
    dilation: int = 1
    up: int = 1


def conv_gemm(
    src: Padded,
    weights: ConvWeights,
    *,
    residual: Tensor | None = None,
    raw: Tensor | None = None,
    activated: tuple[SnakeWeights, Padded] | None = None,
    tile: Tile | None = None,
) -> None:
    """Convolve `src` and write what is asked for.

    src: its left context is (taps - 1) * dilation. residual, raw: [rows, steps * up, outputs],
    added to the result, and filled with it; may be the same. activated: SnakeBeta and the buffer
    whose step it fills, of steps * up columns. All of one dtype, sums in float32. Matches
    `conv_reference`.
    """
    assert src.left == (weights.taps - 1) * weights.dilation
    columns, outputs = weights.weight.shape[0], weights.bias.shape[0]
    assert columns == outputs * weights.up
    count = src.rows * src.stride
    tile = tile or tile_for(count, columns, src.channels, weights.taps)
    bias, dummy = weights.bias, src.data
    act, out = activated or (SnakeWeights(bias, bias), None)
    _conv_gemm[(triton.cdiv(count, tile.rows) * triton.cdiv(columns, tile.columns),)](
        descriptor(src.data, tile.rows, tile.depth),
        descriptor(weights.weight, tile.columns, tile.depth),
        bias,
        act.frequency,
        act.size,
        dummy if residual is None else residual,
        dummy if raw is None else raw,
        dummy if out is None else out.data,
        count,
        src.stride,
        src.steps,
        out.stride if out else 0,
        out.left if out else 0,
        weights.up,
        weights.dilation,
        N=columns,
        COUT=outputs,
        CIN=src.channels,
        TAPS=weights.taps,
        BM=tile.rows,
        BN=tile.columns,
        BK=tile.depth,
        HAS_RES=residual is not None,
        HAS_RAW=raw is not None,
        HAS_ACT=out is not None,
        FAST=src.data.is_cuda,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def conv_reference(
    src: Padded,
    weights: ConvWeights,
    *,
    residual: Tensor | None = None,
    snake_weights: SnakeWeights | None = None,
) -> tuple[Tensor, Tensor | None]:
    """(plain, activated), each [rows, steps * up, outputs], in the buffer's dtype."""
    outputs, taps = weights.bias.shape[0], weights.taps
    kernel = weights.weight.view(-1, taps, src.channels).transpose(1, 2)
    bias = weights.bias.repeat(weights.up).to(src.data.dtype)
    y = functional.conv1d(src.whole.transpose(1, 2), kernel, bias, dilation=weights.dilation)
    plain = y.transpose(1, 2).reshape(src.rows, src.steps * weights.up, outputs)
    if residual is not None:
        plain = plain + residual
    return plain, None if snake_weights is None else snake_reference(plain, snake_weights)


def pack_conv(weight: Tensor) -> Tensor:
    """[outputs, inputs, taps] as `conv1d` takes it -> [outputs, taps * inputs]."""
    return weight.permute(0, 2, 1).flatten(1).contiguous()


def pack_transposed(weight: Tensor, stride: int) -> Tensor:
    """[inputs, outputs, 2 * stride] as `conv_transpose1d` takes it -> [stride * outputs, 2 *
    inputs]; the taps are the column before and the column itself."""
    before, now = weight[:, :, stride:], weight[:, :, :stride]
    both = [part.permute(2, 1, 0).flatten(0, 1) for part in (before, now)]
    return torch.cat(both, dim=1).contiguous()


def descriptor(matrix: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """How TMA reads blocks of a contiguous matrix; zeros outside."""
    return TensorDescriptor(matrix, list(matrix.shape), list(matrix.stride()), [rows, columns])
