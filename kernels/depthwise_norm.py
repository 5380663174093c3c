"""The front of a ConvNeXt block: depthwise causal convolution of 7 taps, then LayerNorm without its
weight and bias, which belong to the linear layer behind."""

import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from voxserve.kernels.padded import Padded

TAPS = 7


@triton.jit(do_not_specialize=["SEG", "T"])
def _depthwise_norm(x, w, bias, out, eps, SEG, T, C: tl.constexpr, CP: tl.constexpr):
    t = tl.program_id(0)
    b = tl.program_id(1)
    c = tl.arange(0, CP)
    inside = c < C
    at = x + (b * SEG + t).to(tl.int64) * C + c
    y = tl.load(bias + c, mask=inside, other=0.0)
    for k in tl.static_range(7):
        tap = tl.load(w + k * C + c, mask=inside, other=0.0)
        y += tap * tl.load(at + k * C, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(y, axis=0) / C
    y = tl.where(inside, y - mean, 0.0)
    y = y * tl.rsqrt(tl.sum(y * y, axis=0) / C + eps)
    tl.store(out + (b * T + t).to(tl.int64) * C + c, y.to(out.dtype.element_ty), mask=inside)


def depthwise_norm(x: Padded, weight: Tensor, bias: Tensor, eps: float, out: Padded) -> None:
    """x: left context 6. weight: [7, channels] float32. bias: [channels] float32.

    out: no left context, is filled. Matches `depthwise_norm_reference`.
    """
    assert x.left == TAPS - 1 and out.left == 0
    _depthwise_norm[(x.steps, x.rows)](
        x.data,
        weight,
        bias,
        out.data,
        eps,
        x.stride,
        x.steps,
        C=x.channels,
        CP=triton.next_power_of_2(x.channels),
        num_warps=4,
    )


def depthwise_norm_reference(x: Padded, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """[rows, steps, channels] in x's dtype."""
    kernel = weight.T[:, None].to(x.data.dtype)
    y = functional.conv1d(x.whole.transpose(1, 2), kernel, bias.to(x.data.dtype), groups=x.channels)
    return functional.layer_norm(y.transpose(1, 2), (x.channels,), eps=eps)
