"""Attention of one new position a row over pages of keys and values, for layers that hand over
their heads finished: rotated queries, and keys and values that are in their pages already.

What `voxserve.nn.attention.PagedKv` does in a decode step, without gathering whole page tables.
`voxserve.kernels.decode_attention` is for a fused stack instead: there the norm of each head, the
rotation and the append are part of the kernel. A plain layer without norms of its heads, which
does these itself, needs none of that.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

LOG2_E = 1.4426950408889634
LEAST_LINES = 16
"""Query heads are filled up to what a matrix unit takes."""


@triton.jit
def _paged_decode(
    queries,
    cache,
    tables,
    positions,
    out,
    scale,
    P,
    UNITS: tl.constexpr,
    KEYS: tl.constexpr,
    GROUP: tl.constexpr,
    LINES: tl.constexpr,
    D: tl.constexpr,
):
    """One key head of one row: its group of query heads over positions 0 … the row's own."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    g, u, d = tl.arange(0, LINES), tl.arange(0, UNITS), tl.arange(0, D)
    mine = (g < GROUP)[:, None] & (d >= 0)[None, :]
    lines = ((row * KEYS + head) * GROUP + g)[:, None] * D + d[None, :]
    q = tl.load(queries + lines, mask=mine, other=0.0)
    seen_to = tl.load(positions + row).to(tl.int32) + 1
    most = tl.zeros((LINES,), tl.float32) - 1e30
    weight = tl.zeros((LINES,), tl.float32)
    mixed = tl.zeros((LINES, D), tl.float32)
    for number in range(0, (seen_to + UNITS - 1) // UNITS):
        page = tl.load(tables + row * P + number)
        at = cache + ((page * 2 * UNITS + u) * KEYS + head)[:, None] * D + d[None, :]
        there = number * UNITS + u < seen_to
        keys = tl.load(at, mask=there[:, None], other=0.0)
        values = tl.load(at + UNITS * KEYS * D, mask=there[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(there[None, :], scores, -1e30)
        higher = tl.maximum(most, tl.max(scores, axis=1))
        fade = tl.exp2(most - higher)
        shares = tl.where(there[None, :], tl.exp2(scores - higher[:, None]), 0.0)
        weight = weight * fade + tl.sum(shares, axis=1)
        fresh = tl.dot(shares.to(values.dtype), values, input_precision="ieee")
        mixed = mixed * fade[:, None] + fresh
        most = higher
    tl.store(out + lines, (mixed / weight[:, None]).to(out.dtype.element_ty), mask=mine)


def paged_decode(queries: Tensor, cache: Tensor, tables: Tensor, positions: Tensor) -> Tensor:
    """queries [B, Hq, D], contiguous. cache [pages, 2, units, Hkv, D] of the same dtype. tables
    [B, P] int64: pages of each row. positions [B] int64: of the queries, at least 0; keys up to
    there are seen. Returns [B, Hq, D]."""
    rows, heads, size = queries.shape
    _, _, units, keys, _ = cache.shape
    group = heads // keys
    assert queries.is_contiguous() and cache.is_contiguous() and cache.dtype == queries.dtype
    out = torch.empty_like(queries)
    _paged_decode[(rows, keys)](
        queries,
        cache,
        tables.contiguous(),
        positions.contiguous(),
        out,
        size**-0.5 * LOG2_E,
        tables.shape[1],
        units,
        keys,
        group,
        max(LEAST_LINES, triton.next_power_of_2(group)),
        size,
    )
    return out


def paged_decode_reference(
    queries: Tensor, cache: Tensor, tables: Tensor, positions: Tensor
) -> Tensor:
    """The same in plain torch."""
    keys, values = (cache[tables, kind].flatten(1, 2).transpose(1, 2) for kind in (0, 1))
    seen = torch.arange(keys.shape[2], device=keys.device) <= positions[:, None]
    return functional.scaled_dot_product_attention(
        queries[:, :, None], keys, values, attn_mask=seen[:, None, None], enable_gqa=True
    )[:, :, 0]
