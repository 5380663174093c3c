"""Attention of a block-causal layer over pages of whole blocks, and writing the step's own blocks.

Every frame sees all blocks before its own and its own whole block. A program does one head of one
block: it takes the queries, keys and values as the fused linear layer left them, rotates the first
head, leaves its keys and values in the block's page, and attends: to the earlier blocks of the
same step where the linear layer left those, to all others in their pages. It reads no page that is
in use by nobody, however wide the table is, and needs no plan of the host's.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

BRANCHES = 2
LOG2_E = 1.4426950408889634
KEYS = 64
"""Keys that a program takes into its softmax at a time."""


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


@triton.jit(do_not_specialize=["sines", "P", "N"])
def _block_attention(
    qkv,
    out,
    cache,
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
):
    h = tl.program_id(0)
    n = tl.program_id(1)
    z = tl.program_id(2)
    b = z // BRANCH
    WIDTH: tl.constexpr = H * D
    before = tl.load(first + b).to(tl.int32)
    end = tl.load(count + b).to(tl.int32)
    u = tl.arange(0, UP)
    d = tl.arange(0, D)
    turn = h == 0
    inside = u < UNITS
    row = qkv + (z * N * UNITS + u).to(tl.int64) * (3 * WIDTH) + h * D
    own = row + n * (UNITS * 3 * WIDTH)
    angle = angles + (b * N * UNITS + u) * (D // 2)
    now = angle + n * (UNITS * D // 2)
    queries = _turned(own, inside, d, now, sines, turn, D)
    keys = _turned(own + WIDTH, inside, d, now, sines, turn, D)
    values = tl.load(own[:, None] + 2 * WIDTH + d[None, :], mask=inside[:, None], other=0.0)

    pages = cache + (z % BRANCH) * (2 * UNITS * WIDTH) + h * D
    if tl.load(keep + b * N + n) != 0:
        page = tl.load(table + b * P + before + n)
        line = pages + page * PAGE + u * WIDTH
        tl.store(line[:, None] + d[None, :], keys, mask=inside[:, None])
        line += UNITS * WIDTH
        tl.store(line[:, None] + d[None, :], values, mask=inside[:, None])

    most = tl.zeros((UP,), tl.float32) - 1e30
    weight = tl.zeros((UP,), tl.float32)
    mixed = tl.zeros((UP, D), tl.float32)
    seen = inside & (n * UNITS + u < end)
    # A block without real frames sees its first one, so that nothing is divided by zero.
    seen = seen | ((u == 0) & (before + n == 0))
    most, weight, mixed = _taken_in(queries, keys, values, seen, scale, most, weight, mixed)
    for m in range(0, n):
        line = row + m * (UNITS * 3 * WIDTH)
        then = angle + m * (UNITS * D // 2)
        their = _turned(line + WIDTH, inside, d, then, sines, turn, D)
        values = tl.load(line[:, None] + 2 * WIDTH + d[None, :], mask=inside[:, None], other=0.0)
        seen = inside & (m * UNITS + u < end)
        most, weight, mixed = _taken_in(queries, their, values, seen, scale, most, weight, mixed)
    j = tl.arange(0, TILE)
    for start in range(0, before * UNITS, TILE):
        at = start + j
        seen = at < before * UNITS
        page = tl.load(table + b * P + at // UNITS, mask=seen, other=0)
        line = pages + page * PAGE + (at % UNITS) * WIDTH
        old = tl.load(line[:, None] + d[None, :], mask=seen[:, None], other=0.0)
        line += UNITS * WIDTH
        values = tl.load(line[:, None] + d[None, :], mask=seen[:, None], other=0.0)
        most, weight, mixed = _taken_in(queries, old, values, seen, scale, most, weight, mixed)
    mixed = mixed / tl.maximum(weight, 1e-30)[:, None]
    at = out + (z * N * UNITS + n * UNITS + u).to(tl.int64) * WIDTH + h * D
    tl.store(at[:, None] + d[None, :], mixed.to(out.dtype.element_ty), mask=inside[:, None])


def block_attention(qkv: Tensor, out: Tensor, cache: Tensor, rows: BlockRows) -> None:
    """Write the step's blocks and attend.

    qkv: [2 B, N * units, 3 * H * D], not yet rotated. out: [2 B, N * units, H * D], is filled.
    cache: [pages, 2 branches, 2, units, H, D], a layer's pages of one of the solver's steps (a
    view; contiguous within a page), finite; the pages of kept blocks are written.
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
    blocks = rows.keep.shape[1]
    _block_attention[(heads, blocks, len(qkv))](
        qkv,
        out,
        cache,
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
        UP=triton.next_power_of_2(max(units, 16)),
        TILE=KEYS,
        BRANCH=BRANCHES,
        num_warps=4,
        num_stages=3,
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
