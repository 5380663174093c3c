"""One code a row from its logits, by a search for the threshold instead of a sort.

What `voxserve.nn.sampling` does with `penalise`, `gumbel` and `choose`, for logits as they come
from the head: the same codes for the same logits, but that top-p may differ at its edge by the
order in which the probabilities are added. Behind it the next input is fetched, so that a frame's
loop needs no kernel of its own for that. `voxserve.kernels.choose_again` shares the search.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from voxserve.kernels.stream import Stream, put_stream

GOLDEN = tl.constexpr(-7046029254386353131)
MIX_1 = tl.constexpr(-4658895280553007687)
MIX_2 = tl.constexpr(-7723592293110705685)
MOST_CODES = tl.constexpr(65536)
LOWEST = tl.constexpr(-2147483648)


@dataclass(frozen=True, slots=True)
class Draw:
    """What the draws of one step have in common.

    slots, steps [B] int64. sampling [slots + 1, C] float32 and seeds [slots + 1] int64: of the
    slots. codes [B, K] int64 gets the result, and so does kept [slots + 1, K].
    """

    slots: Tensor
    steps: Tensor
    sampling: Tensor
    seeds: Tensor
    codes: Tensor
    kept: Tensor


@dataclass(frozen=True, slots=True)
class Talk:
    """What the first codebook's draw needs beside. said [slots + 1, V] bool, updated in place;
    mute [slots + 1] bool: never end. Columns of `sampling`: penalty, and the steps before which
    nothing ends. end: the code that ends; control: so many codes at the end that may not be said.
    """

    said: Tensor
    mute: Tensor
    penalty: int
    least_steps: int
    end: int
    control: int


@triton.jit
def _mix(x):
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * MIX_1
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * MIX_2
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@triton.jit
def noise_of(seed, step, book, v, EXACT: tl.constexpr):
    """`nn.sampling.gumbel` at codes v; EXACT: with the logarithm that torch uses on a GPU."""
    key = _mix(_mix(seed + GOLDEN) + step)
    place = v.to(tl.int64) + book * MOST_CODES
    bits = (_mix(key + place * GOLDEN) >> 41) & 0x7FFFFF
    uniform = (bits.to(tl.float32) + 0.5) * 1.1920928955078125e-07
    return -libdevice.log(-libdevice.log(uniform)) if EXACT else -tl.log(-tl.log(uniform))


@triton.jit
def _ordered(x):
    """int32 that compare as the floats do."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _highest(ordered, weights, goal):
    """The highest t with sum(weights where ordered >= t) >= goal, bit by bit; a lower one that cuts
    at the same place where the sum meets the goal exactly."""
    t = tl.full((), LOWEST, tl.int32)
    bit = tl.full((), 31, tl.int32)
    while bit >= 0:
        higher = t ^ (tl.full((), 1, tl.int32) << bit)
        reached = tl.sum(tl.where(ordered >= higher, weights, 0.0), axis=0)
        t = tl.where(reached >= goal, higher, t)
        bit = tl.where(reached == goal, -1, bit - 1)
    return t


@triton.jit
def kept_of(warm, inside, top_k, top_p, V: tl.constexpr, BLOCK: tl.constexpr):
    """Which of `warm` [BLOCK], V of them `inside`, top-k and top-p leave."""
    ordered = _ordered(warm)
    least = tl.full((), LOWEST, tl.int32)
    if (top_k >= 1) & (top_k < V):
        count = top_k.to(tl.int32).to(tl.float32)
        least = _highest(ordered, tl.where(inside, 1.0, 0.0), count)
    if top_p < 1:
        shares = tl.exp(warm - tl.max(warm, axis=0))
        shares = tl.where(inside & (ordered >= least), shares, 0.0)
        shares = tl.div_rn(shares, tl.sum(shares, axis=0) + tl.zeros((BLOCK,), tl.float32))
        least = tl.maximum(least, _highest(ordered, shares, tl.maximum(top_p, 1e-9)))
    return inside & (ordered >= least)


@triton.jit
def _choose(
    logits,
    slots,
    steps,
    sampling,
    seeds,
    codes,
    kept,
    said,
    mute,
    table,
    gain,
    x,
    residual,
    squares,
    book,
    column,
    V: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    BOOKS: tl.constexpr,
    FIRST: tl.constexpr,
    PENALTY: tl.constexpr,
    LEAST_STEPS: tl.constexpr,
    END: tl.constexpr,
    CONTROL: tl.constexpr,
    HIDDEN: tl.constexpr,
    EXACT: tl.constexpr,
):
    row, number = tl.program_id(0).to(tl.int64), tl.program_id(1)
    book += number
    v = tl.arange(0, BLOCK)
    slot, step = tl.load(slots + row), tl.load(steps + row)
    values = sampling + slot * COLUMNS
    line = logits + (row * tl.num_programs(1) + number) * V
    warm = tl.load(line + v, mask=v < V, other=-float("inf"))
    if FIRST:
        factor = tl.load(values + PENALTY)
        again = tl.load(said + slot * V + v, mask=v < V, other=0) != 0
        shy = tl.where(warm > 0, tl.div_rn(warm, factor), warm * factor)
        warm = tl.where(again, shy, warm)
        early = (step.to(tl.float32) < tl.load(values + LEAST_STEPS)) | (tl.load(mute + slot) != 0)
        banned = tl.where(v == END, early, v >= V - CONTROL)
        warm = tl.where(banned, -float("inf"), warm)
    temperature = tl.load(values + column)
    greedy = temperature <= 0
    warm = tl.div_rn(warm, tl.where(greedy, 1.0, temperature))
    top_k, top_p = tl.load(values + column + 1), tl.load(values + column + 2)
    lucky = warm
    if temperature > 0:
        lucky = warm + noise_of(tl.load(seeds + slot), step, book, v, EXACT)
    lucky = tl.where(kept_of(warm, v < V, top_k, top_p, V, BLOCK), lucky, -float("inf"))
    code = tl.argmax(lucky, axis=0, tie_break_left=True)
    code = tl.minimum(code, V - 1)
    tl.store(codes + row * BOOKS + book, code.to(tl.int64))
    tl.store(kept + slot * BOOKS + book, code.to(tl.int64))
    if FIRST:
        tl.store(said + slot * V + code, 1)
    if HIDDEN > 0:
        columns = tl.arange(0, HIDDEN)
        value = tl.load(table + code.to(tl.int64) * HIDDEN + columns).to(tl.float32)
        put_stream(value, row, columns, 0, gain, x, residual, squares, HIDDEN, 1)


def choose(
    logits: Tensor,
    draw: Draw,
    book: int,
    column: int,
    *,
    books: int = 1,
    talk: Talk | None = None,
    table: Tensor | None = None,
    gain: Tensor | None = None,
    out: Stream | None = None,
) -> None:
    """Choose a code of codebook `book`, or of `books` from there on, for the first B rows of logits
    [*, books * V] float32.

    column: of `draw.sampling`, where temperature, top-k and top-p stand. With `table` [V, H] the
    code's row becomes the stream `out`, one part wide, with `gain` [H] of its first norm; that, and
    `talk`, are for one codebook.
    """
    assert books == 1 or (talk is None and table is None)
    codes = logits.shape[1] // books
    none = logits
    _choose[(len(draw.slots), books)](
        logits,
        draw.slots,
        draw.steps,
        draw.sampling,
        draw.seeds,
        draw.codes,
        draw.kept,
        none if talk is None else talk.said.view(torch.uint8),
        none if talk is None else talk.mute.view(torch.uint8),
        none if table is None else table,
        none if gain is None else gain,
        none if out is None else out.x,
        none if out is None else out.residual,
        none if out is None else out.squares,
        book,
        column,
        codes,
        triton.next_power_of_2(codes),
        draw.sampling.shape[1],
        draw.codes.shape[1],
        talk is not None,
        0 if talk is None else talk.penalty,
        0 if talk is None else talk.least_steps,
        0 if talk is None else talk.end,
        0 if talk is None else talk.control,
        0 if table is None else table.shape[1],
        logits.is_cuda,
        num_warps=8,
    )
