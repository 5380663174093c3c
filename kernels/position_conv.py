"""A causal convolution in groups with Mish behind it, and the state that its next step needs.

The few channels of a group make one small product of matrices for each tap; a program does one
group of one tile of frames and keeps the sum in registers. Channels last throughout.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

BRANCHES = 2
ALIGNED = tl.constexpr(16)
"""Bytes that rows begin at multiples of."""
TILE = 64
"""Frames that a program does."""


@triton.jit
def _rows(x, state, place, c, there, inside, length, KEPT: tl.constexpr, DIM: tl.constexpr):
    """Rows number `place` of the state and the step behind it, [T, channels]."""
    at = tl.where(place < KEPT, state + place * DIM, x + (place - KEPT) * DIM)
    at = tl.multiple_of(at, ALIGNED)
    wanted = there & (place < KEPT + length)
    return tl.load(at[:, None] + c[None, :], mask=wanted[:, None] & inside[None, :], other=0.0)


@triton.jit(do_not_specialize=["T"])
def _position_conv(
    x,
    before,
    after,
    weight,
    bias,
    residual,
    out,
    lengths,
    T,
    ROW: tl.constexpr,
    BRANCH: tl.constexpr,
    DIM: tl.constexpr,
    C: tl.constexpr,
    CP: tl.constexpr,
    TAPS: tl.constexpr,
    BM: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
):
    g = tl.program_id(0)
    tile = tl.program_id(1)
    z = tl.program_id(2)
    KEPT: tl.constexpr = TAPS - 1
    t = tile * BM + tl.arange(0, BM)
    n = tl.arange(0, CP)
    c = g * C + n
    inside = n < C
    line = x + z.to(tl.int64) * T * DIM
    place = (z // 2).to(tl.int64) * ROW + (z % 2) * BRANCH
    state = before + place
    real = t < T
    total = tl.zeros((BM, CP), tl.float32)
    square = weight + g * (TAPS * C * C)
    for tap in range(TAPS):
        part = _rows(line, state, t + tap, c, real, inside, T, KEPT, DIM)
        at = square + tap * (C * C) + n[:, None] * C + n[None, :]
        taps = tl.load(at, mask=inside[:, None] & inside[None, :], other=0.0)
        total = tl.dot(part, taps, total)
    total += tl.load(bias + c, mask=inside, other=0.0).to(tl.float32)[None, :]
    # Mish, x * tanh(log(1 + exp(x))), without the logarithm
    e = tl.exp(tl.minimum(total, 20.0))
    e = e * (e + 2)
    total = tl.where(total > 20.0, total, total * (e / (e + 2)))
    wanted = real[:, None] & inside[None, :]
    at = z.to(tl.int64) * T * DIM + t[:, None] * DIM + c[None, :]
    if HAS_RESIDUAL:
        # Rounded as the sum of two tensors is.
        kind = out.dtype.element_ty
        total = total.to(kind).to(tl.float32)
        total += tl.load(residual + at, mask=wanted, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=wanted)
    if tile == 0:
        k = tl.arange(0, BM)
        kept = k < KEPT
        first = tl.load(lengths + z // 2).to(tl.int32)
        last = _rows(line, state, first + k, c, kept, inside, T, KEPT, DIM)
        room = after + place + k[:, None] * DIM + c[None, :]
        tl.store(room, last.to(after.dtype.element_ty), mask=kept[:, None] & inside[None, :])


def group_weight(weight: Tensor, groups: int) -> Tensor:
    """A Conv1d's weight [dim, channels, taps] as [groups, taps, channels in, channels out]."""
    dim, channels, taps = weight.shape
    return weight.view(groups, dim // groups, channels, taps).permute(0, 3, 2, 1).contiguous()


def position_conv(
    x: Tensor,
    before: Tensor,
    after: Tensor,
    weight: Tensor,
    bias: Tensor,
    lengths: Tensor,
    out: Tensor,
    residual: Tensor | None = None,
) -> None:
    """out = mish(conv(x)) (+ residual), `after` = what the next step needs.

    x, out, residual: [2 B, T, dim] contiguous; out may be neither of the others. before, after:
    [B, 2, taps - 1, dim], views of equal strides, contiguous in the last two axes. weight: from
    `group_weight`. lengths: [B] int64, real frames. Matches `position_conv_reference`.
    """
    rows, frames, dim = x.shape
    groups, taps, channels, _ = weight.shape
    assert x.is_contiguous() and out.is_contiguous() and weight.is_contiguous()
    assert (
        before.dtype == x.dtype
        and before.stride() == after.stride()
        and before.stride()[2:] == (dim, 1)
    )
    assert taps <= TILE and groups * channels == dim
    _position_conv[(groups, triton.cdiv(frames, TILE), rows)](
        x,
        before,
        after,
        weight,
        bias,
        residual if residual is not None else x,
        out,
        lengths,
        frames,
        ROW=before.stride(0),
        BRANCH=before.stride(1),
        DIM=dim,
        C=channels,
        CP=triton.next_power_of_2(max(channels, 16)),
        TAPS=taps,
        BM=TILE,
        HAS_RESIDUAL=residual is not None,
        num_warps=4,
        num_stages=5,
    )


def position_conv_reference(
    x: Tensor, before: Tensor, weight: Tensor, bias: Tensor, lengths: Tensor, groups: int
) -> tuple[Tensor, Tensor]:
    """(mish(conv(x)) [2 B, T, dim], the new state [B, 2, taps - 1, dim]). weight: as published."""
    kept = weight.shape[2] - 1
    whole = torch.cat((before.flatten(0, 1).to(x.dtype), x), dim=1)
    y = functional.mish(functional.conv1d(whole.transpose(1, 2), weight, bias, groups=groups))
    place = lengths.repeat_interleave(BRANCHES)[:, None] + torch.arange(kept, device=x.device)
    after = whole.gather(1, place[..., None].expand(-1, -1, x.shape[2]))
    return y.transpose(1, 2), after.view(before.shape).to(before.dtype)
