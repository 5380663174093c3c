"""Attention of one new position a row over pages of keys and values, read through the slots' page
tables.

The kernel takes the product of the fused query, key and value map as it is: it applies the
stream's row factor, the norm of each head and the rotation, appends keys and values to their page,
and attends. Lengths and pages come from the slots, so a captured graph needs no plan of the host's.
cache: [pages + 1, 2, units, Hkv, D], the last page a spare that takes what nobody reads.
"""

import triton
import triton.language as tl
from torch import Tensor

from voxserve.kernels import tiles
from voxserve.kernels.heads import Heads, attend_block, product_factor, turned_heads

ROWS = 16
"""Query heads are filled up to what a matrix unit takes."""


@triton.jit
def put_part(room, number, g, c, most, weight, low_sum, high_sum, HALF: tl.constexpr):
    """Leave one part's running softmax, (2 HALF + 2) numbers a line, in `room`."""
    lines: tl.constexpr = most.shape[0]
    line = room + (number * lines + g) * (2 * HALF + 2)
    tl.store(line, most)
    tl.store(line + 1, weight)
    wide = line[:, None] + 2 + c[None, :]
    tl.store(wide, low_sum)
    tl.store(wide + HALF, high_sum)


@triton.jit
def join_parts(room, pair, g, c, SPLIT: tl.constexpr, HALF: tl.constexpr):
    """The weight and sums over all parts, taken in their order."""
    lines: tl.constexpr = g.shape[0]
    most = tl.zeros((lines,), tl.float32) - 1e30
    weight = tl.zeros((lines,), tl.float32)
    low_sum = tl.zeros((lines, HALF), tl.float32)
    high_sum = tl.zeros((lines, HALF), tl.float32)
    for part in range(SPLIT):
        line = room + ((pair * SPLIT + part) * lines + g) * (2 * HALF + 2)
        its_most = tl.load(line, cache_modifier=".cg")
        wide = line[:, None] + 2 + c[None, :]
        higher = tl.maximum(most, its_most)
        fade, its_fade = tl.exp(most - higher), tl.exp(its_most - higher)
        weight = weight * fade + tl.load(line + 1, cache_modifier=".cg") * its_fade
        its_low = tl.load(wide, cache_modifier=".cg")
        its_high = tl.load(wide + HALF, cache_modifier=".cg")
        low_sum = low_sum * fade[:, None] + its_low * its_fade[:, None]
        high_sum = high_sum * fade[:, None] + its_high * its_fade[:, None]
        most = higher
    return weight, low_sum, high_sum


@triton.jit
def keep_new(
    key_at,
    new,
    wanted,
    gain,
    cosine,
    sine,
    scale,
    c,
    g,
    KEYS: tl.constexpr,
    FAR: tl.constexpr,
    HALF: tl.constexpr,
    EPS: tl.constexpr,
    NORM: tl.constexpr,
):
    """The halves [HALF] of a new position's key and value as the cache keeps them; where `wanted`
    also stored there, values FAR behind."""
    kind = new.dtype.element_ty
    key_low, key_high = turned_heads(
        key_at + g * 0, g == 0, gain, cosine, sine, scale, c, HALF, EPS, NORM
    )
    # The tile's first line, as a vector.
    key_low = tl.sum(key_low, axis=0).to(kind)
    key_high = tl.sum(key_high, axis=0).to(kind)
    value_at = key_at + KEYS * 2 * HALF
    value_low = (tl.load(value_at + c).to(tl.float32) * scale).to(kind)
    value_high = (tl.load(value_at + HALF + c).to(tl.float32) * scale).to(kind)
    if wanted:
        tl.store(new + c, key_low)
        tl.store(new + HALF + c, key_high)
        tl.store(new + FAR + c, value_low)
        tl.store(new + FAR + HALF + c, value_high)
    return key_low, key_high, value_low, value_high


@triton.jit
def place_of(row, slots, steps, prompts, last_position):
    """A decode row's slot, and its new position: the prompt's length plus the frames before."""
    slot = tl.load(slots + row)
    position = tl.load(prompts + slot) + tl.load(steps + row) - 1
    return slot, tl.minimum(tl.maximum(position, 0), last_position)


@triton.jit
def _decode(
    qkv,
    squares,
    slots,
    steps,
    prompts,
    tables,
    cache,
    query_gain,
    key_gain,
    cosines,
    sines,
    room,
    arrived,
    out,
    spare_slot,
    spare_page,
    last_position,
    TABLE: tl.constexpr,
    UNITS: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    HALF: tl.constexpr,
    HIDDEN: tl.constexpr,
    PARTS: tl.constexpr,
    SPLIT: tl.constexpr,
    LINES: tl.constexpr,
    STAGES: tl.constexpr,
    EPS: tl.constexpr,
    NORM: tl.constexpr,
):
    """One key head of one row, and a part of its pages; the last to arrive joins the parts."""
    row, head, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    size: tl.constexpr = 2 * HALF
    root: tl.constexpr = size**0.5
    group: tl.constexpr = QUERIES // KEYS
    c, t, g = tl.arange(0, HALF), tl.arange(0, UNITS), tl.arange(0, LINES)
    slot, position = place_of(row, slots, steps, prompts, last_position)
    real = slot != spare_slot
    scale = product_factor(squares, row, HIDDEN, PARTS, EPS)
    cosine = tl.load(cosines + position * HALF + c)
    sine = tl.load(sines + position * HALF + c)
    line = qkv + row * (QUERIES + 2 * KEYS) * size
    stride: tl.constexpr = KEYS * size
    kind = cache.dtype.element_ty
    page = tl.where(real, tl.load(tables + slot * TABLE + position // UNITS), spare_page)
    new = cache + (page * 2 * UNITS + position % UNITS) * stride + head * size
    key_low, key_high, value_low, value_high = keep_new(
        line + (QUERIES + head) * size,
        new,
        part == 0,
        key_gain,
        cosine[None, :],
        sine[None, :],
        scale,
        c,
        g,
        KEYS,
        UNITS * stride,
        HALF,
        EPS,
        NORM,
    )
    past = tl.where(real, position, 0).to(tl.int32)
    pages = (past + UNITS - 1) // UNITS
    share = (pages + SPLIT - 1) // SPLIT
    first = part * share
    end = tl.minimum(first + share, pages)
    mine = g < group
    query_low, query_high = turned_heads(
        line + (head * group + g) * size,
        mine,
        query_gain,
        cosine[None, :],
        sine[None, :],
        scale,
        c,
        HALF,
        EPS,
        NORM,
    )
    query_low, query_high = query_low.to(kind), query_high.to(kind)
    own = (
        query_low.to(tl.float32) * key_low.to(tl.float32)[None, :]
        + query_high.to(tl.float32) * key_high.to(tl.float32)[None, :]
    )
    # The first part begins with the new position itself.
    begins = tl.where(part == 0, 1.0, 0.0)
    most = tl.where(part == 0, tl.sum(own, axis=1) / root, -1e30)
    weight = tl.zeros((LINES,), tl.float32) + begins
    low_sum = tl.zeros((LINES, HALF), tl.float32) + (begins * value_low.to(tl.float32))[None, :]
    high_sum = tl.zeros((LINES, HALF), tl.float32) + (begins * value_high.to(tl.float32))[None, :]
    for number in tl.range(first, end, num_stages=STAGES):
        page = tl.load(tables + slot * TABLE + number)
        at = cache + (page * 2 * UNITS + t) * stride + head * size
        there = number * UNITS + t < past
        most, weight, low_sum, high_sum = attend_block(
            query_low,
            query_high,
            at,
            there,
            there[None, :],
            c,
            most,
            weight,
            low_sum,
            high_sum,
            UNITS * stride,
        )
    last = True
    if SPLIT > 1:
        pair = row * KEYS + head
        put_part(room, pair * SPLIT + part, g, c, most, weight, low_sum, high_sum, HALF)
        tl.debug_barrier()
        last = tl.atomic_add(arrived + pair, 1, sem="acq_rel", scope="gpu") == SPLIT - 1
    if last:
        if SPLIT > 1:
            tl.store(arrived + pair, 0)
            weight, low_sum, high_sum = join_parts(room, pair, g, c, SPLIT, HALF)
        into = out + row * QUERIES * size + ((head * group + g) * size)[:, None] + c[None, :]
        wanted = mine[:, None] & (c >= 0)[None, :]
        tl.store(into, (low_sum / weight[:, None]).to(out.dtype.element_ty), mask=wanted)
        tl.store(into + HALF, (high_sum / weight[:, None]).to(out.dtype.element_ty), mask=wanted)


def splits(rows: int, keys: int) -> int:
    """Programs that share the pages of one row and head: enough of them to fill the SMs."""
    if tiles.fixed():
        return 1
    free = 2 * tiles.sms() // (rows * keys)
    return max(1, min(16, 1 << free.bit_length() >> 1))


def decode_attention(
    qkv: Tensor,
    squares: Tensor,
    slots: Tensor,
    steps: Tensor,
    prompts: Tensor,
    tables: Tensor,
    cache: Tensor,
    heads: Heads,
    arrived: Tensor,
    out: Tensor,
    *,
    split: int | None = None,
) -> Tensor:
    """One new position a row, prompts[slot] + step - 1: appended to its page, then attended from.

    qkv [R, (Hq + 2 Hkv) D], before the stream's factor unless `heads` says that it has it; squares
    [R, S]: of that stream. slots, steps [B] int64; prompts [slots + 1] int64; tables [slots + 1, P]
    int64. arrived: int32 zeros, one a row and key head; zeros again afterwards. out [R, Hq D] gets
    the first B rows, and is returned. Rows of the last slot are padding: they write to the spare
    page and read nothing.
    """
    rows, split = len(slots), split or splits(len(slots), heads.keys)
    size, room, gains = heads.size, squares, heads.gains()
    if split > 1:
        room = squares.new_empty(rows, heads.keys, split, ROWS, size + 2)
        assert rows * heads.keys <= len(arrived)
    _decode[(rows, heads.keys, split)](
        qkv,
        squares,
        slots,
        steps,
        prompts,
        tables,
        cache,
        *gains,
        heads.cosines,
        heads.sines,
        room,
        arrived,
        out,
        len(prompts) - 1,
        cache.shape[0] - 1,
        tables.shape[1] * cache.shape[2] - 1,
        tables.shape[1],
        cache.shape[2],
        heads.queries,
        heads.keys,
        size // 2,
        heads.hidden,
        heads.parts(squares),
        split,
        ROWS,
        2,
        heads.eps,
        heads.normed,
        num_warps=4,
    )
    return out
