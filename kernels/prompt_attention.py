"""Attention of whole prompts over their pages of keys and values, read through the slots' page
tables.

One kernel finishes the heads of the fused product and appends keys and values to their pages, the
next attends. Product, pages and the spare page are as in `voxserve.kernels.decode_attention`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxserve.kernels import tiles
from voxserve.kernels.heads import Heads, attend_block, product_factor, turned_heads

MOST_POSITIONS = 64
"""Of a prompt that one program takes."""
FIXED_POSITIONS = 16
"""The same where a prompt's result must not depend on the bucket that it is filled up to."""


@triton.jit
def _append(
    qkv,
    squares,
    slots,
    lengths,
    tables,
    cache,
    query_gain,
    key_gain,
    cosines,
    sines,
    queries,
    spare_slot,
    spare_page,
    T: tl.constexpr,
    TABLE: tl.constexpr,
    UNITS: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HALF: tl.constexpr,
    HIDDEN: tl.constexpr,
    PARTS: tl.constexpr,
    EPS: tl.constexpr,
    NORM: tl.constexpr,
):
    """One position of a prompt: its queries to `queries`, its keys and values to their page."""
    row, position = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = row * T + position
    size: tl.constexpr = 2 * HALF
    c = tl.arange(0, HALF)
    q, k = tl.arange(0, triton.next_power_of_2(QUERIES)), tl.arange(0, triton.next_power_of_2(KEYS))
    scale = product_factor(squares, token, HIDDEN, PARTS, EPS)
    cosine = tl.load(cosines + position * HALF + c)[None, :]
    sine = tl.load(sines + position * HALF + c)[None, :]
    line = qkv + token * (QUERIES + 2 * KEYS) * size
    there = q < QUERIES
    low, high = turned_heads(
        line + q * size, there, query_gain, cosine, sine, scale, c, HALF, EPS, NORM
    )
    into = queries + token * QUERIES * size + (q * size)[:, None] + c[None, :]
    there = there[:, None] & (c >= 0)[None, :]
    tl.store(into, low.to(queries.dtype.element_ty), mask=there)
    tl.store(into + HALF, high.to(queries.dtype.element_ty), mask=there)
    slot = tl.load(slots + row)
    real = (slot != spare_slot) & (position < tl.load(lengths + row))
    page = tl.load(tables + slot * TABLE + position // UNITS)
    page = tl.where(real, page, spare_page)
    stride: tl.constexpr = KEYS * size
    new = cache + (page * 2 * UNITS + position % UNITS) * stride
    new = new + (k * size)[:, None] + c[None, :]
    kind = cache.dtype.element_ty
    keys = line + QUERIES * size + k * size
    there = k < KEYS
    low, high = turned_heads(keys, there, key_gain, cosine, sine, scale, c, HALF, EPS, NORM)
    there = there[:, None] & (c >= 0)[None, :]
    tl.store(new, low.to(kind), mask=there)
    tl.store(new + HALF, high.to(kind), mask=there)
    values = keys[:, None] + KEYS * size + c[None, :]
    low = tl.load(values, mask=there, other=0.0).to(tl.float32) * scale
    high = tl.load(values + HALF, mask=there, other=0.0).to(tl.float32) * scale
    tl.store(new + UNITS * stride, low.to(kind), mask=there)
    tl.store(new + UNITS * stride + HALF, high.to(kind), mask=there)


@triton.jit
def _prompt(
    queries,
    slots,
    tables,
    cache,
    out,
    T: tl.constexpr,
    TABLE: tl.constexpr,
    UNITS: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HALF: tl.constexpr,
    BM: tl.constexpr,
    STAGES: tl.constexpr,
):
    """BM positions of one prompt and query head, over the pages up to theirs."""
    row, head, block = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    size: tl.constexpr = 2 * HALF
    stride: tl.constexpr = KEYS * size
    c, t, m = tl.arange(0, HALF), tl.arange(0, UNITS), block * BM + tl.arange(0, BM)
    slot = tl.load(slots + row)
    at = ((row * T + m) * QUERIES + head) * size
    at = at[:, None] + c[None, :]
    query_low, query_high = tl.load(queries + at), tl.load(queries + at + HALF)
    most = tl.zeros((BM,), tl.float32) - 1e30
    weight = tl.zeros((BM,), tl.float32)
    low_sum = tl.zeros((BM, HALF), tl.float32)
    high_sum = tl.zeros((BM, HALF), tl.float32)
    for number in tl.range(0, ((block + 1) * BM + UNITS - 1) // UNITS, num_stages=STAGES):
        page = tl.load(tables + slot * TABLE + number)
        keys = cache + (page * 2 * UNITS + t) * stride + head // (QUERIES // KEYS) * size
        place = number * UNITS + t
        most, weight, low_sum, high_sum = attend_block(
            query_low,
            query_high,
            keys,
            place < T,
            place[None, :] <= m[:, None],
            c,
            most,
            weight,
            low_sum,
            high_sum,
            UNITS * stride,
        )
    kind = out.dtype.element_ty
    tl.store(out + at, (low_sum / weight[:, None]).to(kind))
    tl.store(out + at + HALF, (high_sum / weight[:, None]).to(kind))


def prompt_attention(
    qkv: Tensor,
    squares: Tensor,
    slots: Tensor,
    lengths: Tensor,
    tables: Tensor,
    cache: Tensor,
    heads: Heads,
    steps: int,
) -> Tensor:
    """Whole prompts from position 0 on: appended to their pages, each attending to itself.

    qkv [R, (Hq + 2 Hkv) D]: prompt b's position t in row b * steps + t, R at least B * steps;
    `steps` is a multiple of 16.
    squares, slots, tables: as `decode_attention`. lengths [B] int64, positions of each prompt; what
    stands behind goes to the spare page, as do rows of the last slot. Returns [R, Hq D], zero
    where nothing belongs to a prompt, unspecified behind the lengths.
    """
    rows, size = len(slots), heads.size
    queries = qkv.new_empty(len(qkv), heads.queries * size)
    out = torch.empty_like(queries) if len(qkv) == rows * steps else torch.zeros_like(queries)
    spare = cache.shape[0] - 1
    _append[(rows, steps)](
        qkv,
        squares,
        slots,
        lengths,
        tables,
        cache,
        *heads.gains(),
        heads.cosines,
        heads.sines,
        queries,
        tables.shape[0] - 1,
        spare,
        steps,
        tables.shape[1],
        cache.shape[2],
        heads.queries,
        heads.keys,
        size // 2,
        heads.hidden,
        heads.parts(squares),
        heads.eps,
        heads.normed,
        num_warps=4,
    )
    block = FIXED_POSITIONS if tiles.fixed() else min(MOST_POSITIONS, steps & -steps)
    _prompt[(rows, heads.queries, steps // block)](
        queries,
        slots,
        tables,
        cache,
        out,
        steps,
        tables.shape[1],
        cache.shape[2],
        heads.queries,
        heads.keys,
        size // 2,
        block,
        2,
        num_warps=4,
    )
    return out
