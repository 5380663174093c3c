"""A residual branch through its gate, and the norm that the next branch begins with, at once."""

import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional


@triton.jit
def _gated_norm(x, y, gate, weight, bias, out, eps, C: tl.constexpr, CP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, CP)
    inside = c < C
    line = row * C + c
    kind = x.dtype.element_ty
    sent = tl.load(y + line, mask=inside, other=0.0).to(tl.float32)
    through = tl.load(gate + c, mask=inside, other=0.0).to(tl.float32)
    sums = tl.load(x + line, mask=inside, other=0.0).to(tl.float32) + through * sent
    rounded = sums.to(kind)
    tl.store(x + line, rounded, mask=inside)
    sums = rounded.to(tl.float32)
    sums = tl.where(inside, sums - tl.sum(sums, axis=0) / C, 0.0)
    sums = sums * tl.rsqrt(tl.sum(sums * sums, axis=0) / C + eps)
    scale = tl.load(weight + c, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + c, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + line, (sums * scale + shift).to(kind), mask=inside)


def gated_norm(
    x: Tensor, y: Tensor, gate: Tensor, weight: Tensor, bias: Tensor, out: Tensor, eps: float
) -> None:
    """x += gate * y, then out = the layer norm of x with that weight and bias.

    x, y, out: [..., C] contiguous; gate, weight, bias: [C]. x and out are written, out may be y.
    Matches `gated_norm_reference`.
    """
    channels = x.shape[-1]
    assert x.is_contiguous() and y.is_contiguous() and out.is_contiguous()
    _gated_norm[(x.numel() // channels,)](
        x,
        y,
        gate,
        weight,
        bias,
        out,
        eps,
        C=channels,
        CP=triton.next_power_of_2(channels),
        num_warps=4,
    )


def gated_norm_reference(
    x: Tensor, y: Tensor, gate: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """(the sum, its norm), in x's dtype."""
    sums = (x.float() + gate.float() * y.float()).to(x.dtype)
    wide = functional.layer_norm(sums.float(), sums.shape[-1:], weight.float(), bias.float(), eps)
    return sums, wide.to(x.dtype)
