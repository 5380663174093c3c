"""SnakeBeta inside other kernels: x + sin²(x * frequency) * size, per channel."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SnakeWeights:
    """frequency: eᵅ; size: 1 / (eᵝ + eps); both [channels] float32."""

    frequency: Tensor
    size: Tensor


@triton.jit
def _sine(x, FAST: tl.constexpr):
    if FAST:  # the special function unit: absolute error 1e-6 near zero, far below bf16's
        return tl.inline_asm_elementwise(
            "sin.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.sin(x)


@triton.jit
def snake(x, frequency, size, FAST: tl.constexpr):
    """x [M, N] float32 over channels [N]. FAST: on a GPU; the interpreter has no assembler."""
    s = _sine(x * frequency[None, :], FAST)
    return x + size[None, :] * (s * s)


def snake_reference(x: Tensor, weights: SnakeWeights) -> Tensor:
    """x [..., channels] -> the same shape and dtype."""
    s = torch.sin(x.float() * weights.frequency)
    return (x + weights.size * s * s).to(x.dtype)
