"""Attention of a block-causal layer over pages of whole blocks, and writing the step's own blocks.

Every frame sees all blocks before its own and its own whole block. A program does one head of one
block, or a part of what it sees: it takes the queries, keys and values as the fused linear layer
left them, rotates the first head, leaves its keys and values in the block's page, and attends: to
the earlier blocks of the same step where the linear layer left those, to all others in their pages.
The last of the parts to arrive joins them, in their order. It reads no page that is in use by
nobody, however wide the table is, and needs no plan of the host's.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from voxserve.kernels.tiles import sms

BRANCHES = 2
LOG2_E = 1.4426950408889634
KEYS = 64
"""Keys that a program takes into its softmax at a time."""
WARPS, STAGES = 4, 3
MOST_PARTS = 4
"""Programs that share what a head of a block sees."""


@dataclass(frozen=True, slots=True)
class BlockRows:
    """The rows of one step, each with two branches that lie next to each other.

    table: [B, P] int64, each row's pages from its first block on. first: [B] int64, blocks before
    the step. count: [B] int64, real frames of the step. keep: [B, N] bool, blocks to be written.
    angles: [2, B, N * units, D / 2] float32, cosines and sines of the first head's pairs.
    """

    table: Tensor
    first: Tensor
    count: Tensor
    keep: Tensor
    angles: Tensor


@triton.jit
def _turned(at, there, d, angles, sines, turn, D: tl.constexpr):
    """Rows of a head at pointers `at` [T]; pairs of neighbours rotated where `turn` is not 0.

    angles: [T] pointers to the frames' cosines, sines lie `sines` behind.
    """
    x = tl.load(at[:, None] + d[None, :], mask=there[:, None], other=0.0)
    if turn != 0:
        T: tl.constexpr = x.shape[0]
        HALF: tl.constexpr = D // 2
        c = tl.arange(0, HALF)
        cosine = tl.load(angles[:, None] + c[None, :], mask=there[:, None], other=0.0)
        sine = tl.load(angles[:, None] + sines + c[None, :], mask=there[:, None], other=0.0)
        even, odd = tl.split(tl.reshape(x.to(tl.float32), (T, HALF, 2)))
        pairs = tl.join(even * cosine - odd * sine, odd * cosine + even * sine)
        x = tl.reshape(pairs, (T, D)).to(x.dtype)
    return x


@triton.jit
def _taken_in(queries, keys, values, seen, scale, most, weight, mixed):
    """One part of the keys into a running softmax. scale: of scores, for powers of two."""
    scores = tl.where(seen[None, :], tl.dot(queries, tl.trans(keys)) * scale, -1e30)
    higher = tl.maximum(most, tl.max(scores, axis=1))
    fade = tl.exp2(most - higher)
    shares = tl.where(seen[None, :], tl.exp2(scores - higher[:, None]), 0.0)
    weight = weight * fade + tl.sum(shares, axis=1)
    mixed = tl.dot(shares.to(values.dtype), values, mixed * fade[:, None])
    return higher, weight, mixed


@triton.jit
def _of_the_step(
    queries,
    row,
    angle,
    sines,
    turn,
    n,
    end,
    begins,
    page,
    kept,
    scale,
    most,
    weight,
    mixed,
    D: tl.constexpr,
    UNITS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Take the step's blocks 0 … n of one head into a running softmax; leave the last one's keys
    and values in its page where it is `kept`.

    row, angle [UP]: pointers to the first block's frames. begins: nothing precedes the block.
    """
    u, d = tl.arange(0, queries.shape[0]), tl.arange(0, D)
    inside = u < UNITS
    for m in tl.range(0, n + 1, num_stages=1):
        line = row + m * (UNITS * 3 * WIDTH) + WIDTH
        then = angle + m * (UNITS * D // 2)
        keys = _turned(line, inside, d, then, sines, turn, D)
        values = tl.load(line[:, None] + WIDTH + d[None, :], mask=inside[:, None], other=0.0)
        if kept & (m == n):
            at = page + u * WIDTH
            tl.store(at[:, None] + d[None, :], keys, mask=inside[:, None])
            tl.store(at[:, None] + UNITS * WIDTH + d[None, :], values, mask=inside[:, None])
        seen = inside & (m * UNITS + u < end)
        # A block without real frames sees its first one, so that nothing is divided by zero.
        seen = seen | ((u == 0) & begins)
        most, weight, mixed = _taken_in(queries, keys, values, seen, scale, most, weight, mixed)
    return most, weight, mixed


@triton.jit
def _left(room, number, u, d, most, weight, mixed, D: tl.constexpr):
    """Leave one part's running softmax, D + 2 numbers a line, in `room`."""
    line = room + (number * u.shape[0] + u) * (D + 2)
    tl.store(line, most)
    tl.store(line + 1, weight)
    tl.store(line[:, None] + 2 + d[None, :], mixed)


@triton.jit
def _joined(room, first, u, d, SPLIT: tl.constexpr, D: tl.constexpr):
    """The weight and sums over all parts, taken in their order."""
    most = tl.zeros((u.shape[0],), tl.float32) - 1e30
    weight = tl.zeros((u.shape[0],), tl.float32)
    mixed = tl.zeros((u.shape[0], D), tl.float32)
    for part in tl.static_range(SPLIT):
        line = room + ((first + part) * u.shape[0] + u) * (D + 2)
        its_most = tl.load(line, cache_modifier=".cg")
        its_weight = tl.load(line + 1, cache_modifier=".cg")
        its = tl.load(line[:, None] + 2 + d[None, :], cache_modifier=".cg")
        higher = tl.maximum(most, its_most)
        fade, its_fade = tl.exp2(most - higher), tl.exp2(its_most - higher)
        weight = weight * fade + its_weight * its_fade
        mixed = mixed * fade[:, None] + its * its_fade[:, None]
        most = higher
    return weight, mixed


@triton.jit(do_not_specialize=["sines", "P", "N"])
def _block_attention(
    qkv,
    out,
    cache,
    room,
    arrived,
    angles,
    table,
    first,
    count,
    keep,
    scale,
    sines,
    P,
    N,
    PAGE: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    UNITS: tl.constexpr,
    UP: tl.constexpr,
    TILE: tl.constexpr,
    BRANCH: tl.constexpr,
    SPLIT: tl.constexpr,
):
    h = tl.program_id(0) // SPLIT
    part = tl.program_id(0) % SPLIT
    n = tl.program_id(1)
    z = tl.program_id(2)
    b = z // BRANCH
    WIDTH: tl.constexpr = H * D
    before = tl.load(first + b).to(tl.int32)
    end = tl.load(count + b).to(tl.int32)
    u = tl.arange(0, UP)
    d = tl.arange(0, D)
    inside = u < UNITS
    row = qkv + (z * N * UNITS + u).to(tl.int64) * (3 * WIDTH) + h * D
    angle = angles + (b * N * UNITS + u) * (D // 2)
    own, now = row + n * (UNITS * 3 * WIDTH), angle + n * (UNITS * D // 2)
    pages = cache + (z % BRANCH) * (2 * UNITS * WIDTH) + h * D
    j = tl.arange(0, TILE)
    share = tl.cdiv(tl.cdiv(before * UNITS, TILE), SPLIT) * TILE
    start_at, end_at = part * share, tl.minimum((part + 1) * share, before * UNITS)
    queries = _turned(own, inside, d, now, sines, h == 0, D)
    kept = tl.load(keep + b * N + n) != 0
    most = tl.zeros((UP,), tl.float32) - 1e30
    weight = tl.zeros((UP,), tl.float32)
    mixed = tl.zeros((UP, D), tl.float32)
    # The last part has the fewest pages, and the step's own blocks.
    if part == SPLIT - 1:
        most, weight, mixed = _of_the_step(
            queries,
            row,
            angle,
            sines,
            h == 0,
            n,
            end,
            before + n == 0,
            pages + tl.load(table + b * P + before + n, mask=kept, other=0) * PAGE,
            kept,
            scale,
            most,
            weight,
            mixed,
            D,
            UNITS,
            WIDTH,
        )
    for start in range(start_at, end_at, TILE):
        at = start + j
        seen = at < before * UNITS
        page = tl.load(table + b * P + at // UNITS, mask=seen, other=0)
        line = pages + page * PAGE + (at % UNITS) * WIDTH
        old = tl.load(line[:, None] + d[None, :], mask=seen[:, None], other=0.0)
        line += UNITS * WIDTH
        values = tl.load(line[:, None] + d[None, :], mask=seen[:, None], other=0.0)
        most, weight, mixed = _taken_in(queries, old, values, seen, scale, most, weight, mixed)
    last = True
    if SPLIT > 1:
        number = (z * N + n) * H + h
        _left(room, number * SPLIT + part, u, d, most, weight, mixed, D)
        tl.debug_barrier()
        last = tl.atomic_add(arrived + number, 1, sem="acq_rel", scope="gpu") == SPLIT - 1
    if last:
        if SPLIT > 1:
            tl.store(arrived + number, 0)
            weight, mixed = _joined(room, number * SPLIT, u, d, SPLIT, D)
        mixed = mixed / tl.maximum(weight, 1e-30)[:, None]
        at = out + (z * N * UNITS + n * UNITS + u).to(tl.int64) * WIDTH + h * D
        tl.store(at[:, None] + d[None, :], mixed.to(out.dtype.element_ty), mask=inside[:, None])


def splits(programs: int) -> int:
    """Parts of what a head of a block sees: enough for two programs an SM, a power of two."""
    free = 2 * sms() // programs
    return max(1, min(MOST_PARTS, 1 << free.bit_length() >> 1))


def block_attention(
    qkv: Tensor,
    out: Tensor,
    cache: Tensor,
    rows: BlockRows,
    arrived: Tensor,
    *,
    split: int | None = None,
) -> None:
    """Write the step's blocks and attend.

    qkv: [2 B, N * units, 3 * H * D], not yet rotated. out: [2 B, N * units, H * D], is filled.
    cache: [pages, 2 branches, 2, units, H, D], a layer's pages of one of the solver's steps (a
    view; contiguous within a page), finite; the pages of kept blocks are written.
    arrived: int32 zeros, one a head of every block at least; zeros again afterwards.
    Matches `block_attention_reference`.
    """
    _, branches, _, units, heads, head = cache.shape
    assert cache[0].is_contiguous() and qkv.is_contiguous() and out.is_contiguous()
    assert (
        branches == BRANCHES
        and rows.angles.is_contiguous()
        and rows.table.is_contiguous()
        and rows.keep.is_contiguous()
    )
    blocks, high = rows.keep.shape[1], triton.next_power_of_2(max(units, 16))
    programs = heads * blocks * len(qkv)
    split, room = split or splits(programs), rows.angles
    if split > 1:
        assert programs <= len(arrived)
        room = rows.angles.new_empty(programs, split, high, head + 2)
    _block_attention[(heads * split, blocks, len(qkv))](
        qkv,
        out,
        cache,
        room,
        arrived,
        rows.angles,
        rows.table,
        rows.first,
        rows.count,
        rows.keep,
        head**-0.5 * LOG2_E,
        rows.angles[0].numel(),
        rows.table.shape[1],
        blocks,
        PAGE=cache.stride(0),
        H=heads,
        D=head,
        UNITS=units,
        UP=high,
        TILE=KEYS,
        BRANCH=BRANCHES,
        SPLIT=split,
        num_warps=WARPS,
        num_stages=STAGES,
    )


def block_attention_reference(qkv: Tensor, cache: Tensor, rows: BlockRows) -> Tensor:
    """[2 B, N * units, H * D]; the pages of kept blocks are written, one row after the other."""
    _, branches, _, units, heads, head = cache.shape
    out = torch.zeros(*qkv.shape[:2], heads * head, device=qkv.device, dtype=qkv.dtype)
    frames = torch.arange(qkv.shape[1], device=qkv.device)
    for z in range(len(qkv)):
        b, branch = divmod(z, branches)
        before, end = int(rows.first[b]), int(rows.count[b])
        queries, keys, values = qkv[z].view(-1, 3, heads, head).unbind(1)
        queries, keys = (_first_head_turned(x, rows.angles[:, b]) for x in (queries, keys))
        old = cache[rows.table[b, :before], branch].transpose(0, 1).flatten(1, 2)
        block = frames // units
        mask = (block[:, None] >= block) & (frames < max(end, 1 if before == 0 else 0))
        mask = torch.cat((mask.new_ones(len(frames), before * units), mask), dim=1)
        mixed = functional.scaled_dot_product_attention(
            queries.transpose(0, 1),
            torch.cat((old[0], keys)).transpose(0, 1),
            torch.cat((old[1], values)).transpose(0, 1),
            attn_mask=mask,
        )
        out[z] = mixed.transpose(0, 1).flatten(1)
        for n in range(rows.keep.shape[1]):
            if rows.keep[b, n]:
                page = cache[rows.table[b, before + n], branch]
                page[0] = keys[n * units : (n + 1) * units]
                page[1] = values[n * units : (n + 1) * units]
    return out


def _first_head_turned(x: Tensor, angles: Tensor) -> Tensor:
    """Heads x [T, H, D] with the pairs of the first one turned by their frames' angles."""
    even, odd = x[:, 0].float().view(len(x), -1, 2).unbind(2)
    cosine, sine = angles
    pairs = torch.stack((even * cosine - odd * sine, odd * cosine + even * sine), dim=2)
    turned = x.clone()
    turned[:, 0] = pairs.flatten(1).to(x.dtype)
    return turned
