"""What stands around the estimator in a step of a solver with guidance: its input made of the noisy
frames and their conditions, and the step along both of its answers."""

import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

BRANCHES = 2
ROWS, COLUMNS = 16, 128
"""Frames and channels of the input that a program does."""
BLOCK = 1024
"""Values that a program takes a step with."""


@triton.jit(do_not_specialize=["T"])
def _conditioned(
    x,
    w,
    conditions,
    y,
    T,
    STRIDE: tl.constexpr,
    MEL: tl.constexpr,
    MP: tl.constexpr,
    DIM: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    t = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    b = tl.program_id(2).to(tl.int64)
    k = tl.arange(0, MP)
    there = (t < T)[:, None]
    noisy = tl.load(x + (b * T + t)[:, None] * MEL + k[None, :], mask=there & (k < MEL)[None, :])
    taps = tl.load(w + n[None, :] * STRIDE + k[:, None], mask=(k < MEL)[:, None], other=0.0)
    noisy = tl.where((k < MEL)[None, :], noisy, 0.0).to(taps.dtype)
    value = tl.dot(noisy, taps)
    for branch in tl.static_range(2):
        at = ((b * 2 + branch) * T + t)[:, None] * DIM + n[None, :]
        given = tl.load(conditions + at, mask=there, other=0.0).to(tl.float32)
        tl.store(y + at, (value + given).to(y.dtype.element_ty), mask=there)


def conditioned(x: Tensor, w: Tensor, conditions: Tensor) -> Tensor:
    """w x + conditions of both branches, [2 B, T, dim] in the dtype of the conditions.

    x [B, T, mel] float32; w [dim, at least mel], the columns behind are not read; conditions [B, 2,
    T, dim]. Matches `conditioned_reference`.
    """
    rows, frames, mel = x.shape
    width = len(w)
    assert x.is_contiguous() and w.stride(1) == 1 and conditions.is_contiguous()
    wide = min(COLUMNS, width & -width)
    y = conditions.new_empty(rows * BRANCHES, frames, width)
    _conditioned[(triton.cdiv(frames, ROWS), width // wide, rows)](
        x,
        w,
        conditions,
        y,
        frames,
        STRIDE=w.stride(0),
        MEL=mel,
        MP=triton.next_power_of_2(mel),
        DIM=width,
        BM=ROWS,
        BN=wide,
        num_warps=4,
    )
    return y


@triton.jit(do_not_specialize=["count", "frames_mel"])
def _guided_step(x, velocities, count, frames_mel, size, guidance, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = i < count
    at = velocities + (i // frames_mel).to(tl.int64) * frames_mel + i
    with_them = tl.load(at, mask=there, other=0.0).to(tl.float32)
    without = tl.load(at + frames_mel, mask=there, other=0.0).to(tl.float32)
    old = tl.load(x + i, mask=there, other=0.0)
    tl.store(x + i, old + size * (guidance * with_them - (guidance - 1) * without), mask=there)


def guided_step(x: Tensor, velocities: Tensor, size: float, guidance: float) -> None:
    """x [B, T, mel] float32, in place, a step of that size along the velocities [B, 2, T, mel],
    guided away from the second branch. Matches `guided_step_reference`."""
    assert x.is_contiguous() and velocities.is_contiguous()
    count = x.numel()
    _guided_step[(triton.cdiv(count, BLOCK),)](
        x,
        velocities,
        count,
        count // len(x),
        size,
        guidance,
        BLOCK,
        num_warps=4,
    )


def conditioned_reference(x: Tensor, w: Tensor, conditions: Tensor) -> Tensor:
    plain = functional.linear(x.to(w.dtype).float(), w[:, : x.shape[2]].float())
    return (plain[:, None] + conditions.float()).flatten(0, 1).to(conditions.dtype)


def guided_step_reference(x: Tensor, velocities: Tensor, size: float, guidance: float) -> Tensor:
    with_them, without = velocities.float().unbind(1)
    return x + size * (guidance * with_them - (guidance - 1) * without)
