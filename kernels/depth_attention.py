"""Attention within one frame: at most 16 or so positions, so a warp takes a row and a key head.

Keys and values of a layer lie in cache [2, R, Hkv, P, D]; nothing outlives the step.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxserve.kernels.heads import Heads, reference_heads


@triton.jit
def _turned(at, gain, cosine, sine, scale, c, HALF: tl.constexpr, EPS: tl.constexpr):
    """Both halves [HALF] of one head, normed and rotated."""
    low = tl.load(at + c).to(tl.float32) * scale
    high = tl.load(at + HALF + c).to(tl.float32) * scale
    mean = (tl.sum(low * low, axis=0) + tl.sum(high * high, axis=0)) / (2 * HALF)
    factor = tl.rsqrt(mean + EPS)
    low = low * factor * tl.load(gain + c).to(tl.float32)
    high = high * factor * tl.load(gain + HALF + c).to(tl.float32)
    return low * cosine - high * sine, high * cosine + low * sine


@triton.jit
def _append(
    line,
    squares,
    row,
    head,
    position,
    store,
    key_gain,
    cosines,
    sines,
    c,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HALF: tl.constexpr,
    HIDDEN: tl.constexpr,
    PARTS: tl.constexpr,
    FAR: tl.constexpr,
    EPS: tl.constexpr,
):
    """Keep a position's key and value at `store`, values FAR behind. Returns them as kept, and the
    row's factor, cosines and sines."""
    sums = tl.load(squares + row * PARTS + tl.arange(0, PARTS))
    scale = tl.rsqrt(tl.sum(sums, axis=0) / HIDDEN + EPS)
    cosine = tl.load(cosines + position * HALF + c)
    sine = tl.load(sines + position * HALF + c)
    kind = store.dtype.element_ty
    key_at = line + (QUERIES + head) * 2 * HALF
    key_low, key_high = _turned(key_at, key_gain, cosine, sine, scale, c, HALF, EPS)
    key_low, key_high = key_low.to(kind), key_high.to(kind)
    value_at = key_at + KEYS * 2 * HALF
    value_low = (tl.load(value_at + c).to(tl.float32) * scale).to(kind)
    value_high = (tl.load(value_at + HALF + c).to(tl.float32) * scale).to(kind)
    tl.store(store + c, key_low)
    tl.store(store + HALF + c, key_high)
    tl.store(store + FAR + c, value_low)
    tl.store(store + FAR + HALF + c, value_high)
    return key_low, key_high, value_low, value_high, scale, cosine, sine


@triton.jit
def _step(
    qkv,
    squares,
    cache,
    query_gain,
    key_gain,
    cosines,
    sines,
    out,
    height,
    position,
    POSITIONS: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HALF: tl.constexpr,
    HIDDEN: tl.constexpr,
    PARTS: tl.constexpr,
    EPS: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    size: tl.constexpr = 2 * HALF
    root: tl.constexpr = size**0.5
    group: tl.constexpr = QUERIES // KEYS
    c, t = tl.arange(0, HALF), tl.arange(0, POSITIONS)
    line = qkv + row * (QUERIES + 2 * KEYS) * size
    far = height.to(tl.int64) * KEYS * POSITIONS * size
    base = cache + (row * KEYS + head) * POSITIONS * size
    past = base + t[:, None] * size + c[None, :]
    wanted = (t < position)[:, None] & (c >= 0)[None, :]
    keys_low = tl.load(past, mask=wanted, other=0.0)
    keys_high = tl.load(past + HALF, mask=wanted, other=0.0)
    values_low = tl.load(past + far, mask=wanted, other=0.0)
    values_high = tl.load(past + far + HALF, mask=wanted, other=0.0)
    key_low, key_high, value_low, value_high, scale, cosine, sine = _append(
        line,
        squares,
        row,
        head,
        position,
        base + position * size,
        key_gain,
        cosines,
        sines,
        c,
        QUERIES,
        KEYS,
        HALF,
        HIDDEN,
        PARTS,
        far,
        EPS,
    )
    for one in tl.static_range(group):
        query = (head * group + one) * size
        low, high = _turned(line + query, query_gain, cosine, sine, scale, c, HALF, EPS)
        scores = low[None, :] * keys_low.to(tl.float32) + high[None, :] * keys_high.to(tl.float32)
        scores = tl.where(t < position, tl.sum(scores, axis=1) / root, -1e30)
        own = low * key_low.to(tl.float32) + high * key_high.to(tl.float32)
        own = tl.sum(own, axis=0) / root
        most = tl.maximum(tl.max(scores, axis=0), own)
        shares = tl.where(t < position, tl.exp(scores - most), 0.0)
        share = tl.exp(own - most)
        weight = tl.sum(shares, axis=0) + share
        low = tl.sum(shares[:, None] * values_low.to(tl.float32), axis=0)
        low = (low + share * value_low.to(tl.float32)) / weight
        high = tl.sum(shares[:, None] * values_high.to(tl.float32), axis=0)
        high = (high + share * value_high.to(tl.float32)) / weight
        into = out + row * QUERIES * size + query
        tl.store(into + c, low.to(out.dtype.element_ty))
        tl.store(into + HALF + c, high.to(out.dtype.element_ty))


@triton.jit
def _first_two(
    qkv,
    squares,
    cache,
    query_gain,
    key_gain,
    cosines,
    sines,
    out,
    height,
    POSITIONS: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HALF: tl.constexpr,
    HIDDEN: tl.constexpr,
    PARTS: tl.constexpr,
    EPS: tl.constexpr,
):
    """Rows 0 … R-1 hold position 0, rows R … 2R-1 position 1."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    size: tl.constexpr = 2 * HALF
    root: tl.constexpr = size**0.5
    group: tl.constexpr = QUERIES // KEYS
    wide: tl.constexpr = (QUERIES + 2 * KEYS) * size
    c = tl.arange(0, HALF)
    far = height.to(tl.int64) * KEYS * POSITIONS * size
    base = cache + (row * KEYS + head) * POSITIONS * size
    line, behind = qkv + row * wide, qkv + (row + height) * wide
    first_low, first_high, was_low, was_high, _, _, _ = _append(
        line,
        squares,
        row,
        head,
        0,
        base,
        key_gain,
        cosines,
        sines,
        c,
        QUERIES,
        KEYS,
        HALF,
        HIDDEN,
        PARTS,
        far,
        EPS,
    )
    key_low, key_high, value_low, value_high, scale, cosine, sine = _append(
        behind,
        squares,
        row + height,
        head,
        1,
        base + size,
        key_gain,
        cosines,
        sines,
        c,
        QUERIES,
        KEYS,
        HALF,
        HIDDEN,
        PARTS,
        far,
        EPS,
    )
    kind = out.dtype.element_ty
    for one in tl.static_range(group):
        query = (head * group + one) * size
        into = out + row * QUERIES * size + query
        tl.store(into + c, was_low.to(kind))
        tl.store(into + HALF + c, was_high.to(kind))
        low, high = _turned(behind + query, query_gain, cosine, sine, scale, c, HALF, EPS)
        before = low * first_low.to(tl.float32) + high * first_high.to(tl.float32)
        own = low * key_low.to(tl.float32) + high * key_high.to(tl.float32)
        # A softmax over two is a logistic function of their difference.
        share = 1.0 / (1.0 + tl.exp((tl.sum(before, axis=0) - tl.sum(own, axis=0)) / root))
        low = was_low.to(tl.float32) * (1.0 - share) + value_low.to(tl.float32) * share
        high = was_high.to(tl.float32) * (1.0 - share) + value_high.to(tl.float32) * share
        into = out + (row + height) * QUERIES * size + query
        tl.store(into + c, low.to(kind))
        tl.store(into + HALF + c, high.to(kind))


def depth_attention(
    qkv: Tensor, squares: Tensor, cache: Tensor, heads: Heads, position: int, rows: int
) -> Tensor:
    """Append one position of the first `rows` rows to `cache` and attend from it: [R, Hq D], zero
    in other rows.

    qkv [R, (Hq + 2 Hkv) D], before the stream's row factor, which `squares` [R, S] gives.
    position 1 takes the first two at once: qkv, squares and the result then have 2 R rows, those of
    position 0 first.
    """
    height, positions, size = cache.shape[1], cache.shape[3], heads.size
    make = qkv.new_empty if rows == height else qkv.new_zeros
    out = make(len(qkv), heads.queries * size)
    tensors = (qkv, squares, cache, heads.query_gain, heads.key_gain, heads.cosines, heads.sines)
    sizes = (positions, heads.queries, heads.keys, size // 2, heads.hidden, squares.shape[1])
    grid = (rows, heads.keys)
    if position == 1:
        _first_two[grid](*tensors, out, height, *sizes, heads.eps, num_warps=1)
    else:
        _step[grid](*tensors, out, height, position, *sizes, heads.eps, num_warps=1)
    return out


def reference_depth(
    qkv: Tensor, scale: Tensor, cache: Tensor, heads: Heads, position: int
) -> Tensor:
    """`depth_attention` of one position in plain torch, float32; scale [R, 1]."""
    at = torch.full((len(qkv),), position, device=qkv.device)
    queries, keys, values = reference_heads(qkv, scale, at, heads)
    cache[0, :, :, position], cache[1, :, :, position] = (
        keys.to(cache.dtype),
        values.to(cache.dtype),
    )
    group = heads.queries // heads.keys
    past_keys, past_values = cache[:, :, :, : position + 1].float().repeat_interleave(group, dim=2)
    scores = torch.einsum("rhd,rhtd->rht", queries, past_keys) / heads.size**0.5
    return torch.einsum("rht,rhtd->rhd", scores.softmax(dim=2), past_values).flatten(1)
