"""The last convolution of a vocoder, from C channels to one, out of the products of each column
with each tap: out[t] = bias + sum over k of products[t + k, k], kept in [-1, 1]."""

import triton
import triton.language as tl
from torch import Tensor

from voxserve.kernels.padded import Padded

BLOCK = 512


@triton.jit(do_not_specialize=["SEG", "T"])
def _last_conv(products, bias, out, SEG, T, BLK: tl.constexpr):
    b = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0) * BLK + tl.arange(0, BLK)
    y = tl.zeros((BLK,), tl.float32) + tl.load(bias)
    for k in tl.static_range(7):
        y += tl.load(products + (b * SEG + t + k) * 8 + k, mask=t < T, other=0.0)
    tl.store(out + b * T + t, tl.minimum(tl.maximum(y, -1.0), 1.0), mask=t < T)


def last_conv(products: Padded, bias: Tensor, out: Tensor) -> None:
    """products: 8 float32 channels, left context 6, from `residual_unit`. bias: [1] float32.

    out: [rows, steps] float32, is filled. Matches `last_conv_reference`.
    """
    assert products.left == 6 and products.channels == 8
    grid = (triton.cdiv(products.steps, BLOCK), products.rows)
    _last_conv[grid](
        products.data, bias, out, products.stride, products.steps, BLK=BLOCK, num_warps=4
    )


def last_conv_reference(products: Padded, bias: Tensor) -> Tensor:
    """[rows, steps] float32."""
    steps = products.steps
    taps = [products.whole[:, k : k + steps, k] for k in range(products.left + 1)]
    total: Tensor = sum(taps, bias.float())
    return total.clamp(-1.0, 1.0)
