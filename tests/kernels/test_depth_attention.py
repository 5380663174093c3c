"""Attention within a frame: the first two positions at once, then one after the other."""

import torch

from tests.kernels.heads import EPS, heads, qkv
from tests.kernels.rig import ATOL, DEVICE, DTYPE
from voxserve.kernels.depth_attention import depth_attention, reference_depth
from voxserve.kernels.stream import reference_scale


def test_four_positions() -> None:
    """Three rows of sixteen; the others stay zero."""
    at, rows, height = heads(8), 3, 16
    cache = torch.zeros(2, height, 2, 8, 32, device=DEVICE, dtype=DTYPE)
    reference = cache.clone()
    for position in (1, 2, 3):
        high = 2 * height if position == 1 else height
        product, stream = qkv(high)
        product = product + position
        scale = reference_scale(stream, EPS)
        got = depth_attention(product, stream.squares, cache, at, position, rows).float()
        if position == 1:
            wanted = reference_depth(product[:height], scale[:height], reference, at, 0)
            torch.testing.assert_close(got[:rows], wanted[:rows], atol=ATOL, rtol=ATOL)
            product, scale, got = product[height:], scale[height:], got[height:]
        wanted = reference_depth(product, scale, reference, at, position)
        torch.testing.assert_close(got[:rows], wanted[:rows], atol=ATOL, rtol=ATOL)
        assert not got[rows:].any()
    torch.testing.assert_close(cache[:, :rows], reference[:, :rows], atol=ATOL, rtol=ATOL)
