"""One code a row from its logits; one that was said lately is drawn once more, from all others.

What CosyVoice 3's `Sampler` does in plain torch with the parts of `voxserve.nn.sampling`, and what
is remembered of it, at once. As in `voxserve.kernels.choose` top-p may differ at its edge.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxserve.kernels.choose import kept_of, noise_of

TEMPERATURE, TOP_K, TOP_P, PENALTY, LEAST_STEPS = (tl.constexpr(at) for at in range(5))
"""Columns of `Lately.sampling`."""


@dataclass(frozen=True, slots=True)
class Lately:
    """What the draws read and keep of each slot, the last one padding's.

    sampling [slots + 1, 5] float32: temperature, top-k, top-p, penalty of codes that were said, and
    the steps before which nothing ends. seeds [slots + 1] int64. mute [slots + 1] bool: never end.
    Updated in place: said [slots + 1, V] bool; recent [slots + 1, N] int64, the last codes; code
    [slots + 1] int64, the very last. limit: so many times among them make a code be drawn again.
    codes: ids from there on end the speech, `end` stands for all of them.
    """

    sampling: Tensor
    seeds: Tensor
    mute: Tensor
    said: Tensor
    recent: Tensor
    code: Tensor
    limit: float
    codes: int
    end: int


@triton.jit
def _choose_again(
    logits,
    slots,
    steps,
    sampling,
    seeds,
    mute,
    said,
    recent,
    kept,
    out,
    limit,
    V: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    CODES: tl.constexpr,
    END: tl.constexpr,
    WINDOW: tl.constexpr,
    WP: tl.constexpr,
    EXACT: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    v, w = tl.arange(0, BLOCK), tl.arange(0, WP)
    inside = v < V
    slot, step = tl.load(slots + row), tl.load(steps + row)
    values, seed = sampling + slot * COLUMNS, tl.load(seeds + slot)
    window = recent + slot * WINDOW
    last = tl.load(window + w, mask=w < WINDOW, other=-1)
    behind = tl.load(window + w + 1, mask=w < WINDOW - 1, other=-1)
    warm = tl.load(logits + row * STRIDE + v, mask=inside, other=-float("inf"))
    factor = tl.load(values + PENALTY)
    known = tl.load(said + slot * V + v, mask=inside, other=0) != 0
    shy = tl.where(warm > 0, tl.div_rn(warm, factor), warm * factor)
    warm = tl.where(known, shy, warm)
    early = (step.to(tl.float32) < tl.load(values + LEAST_STEPS)) | (tl.load(mute + slot) != 0)
    warm = tl.where(v >= CODES, tl.where(early, -float("inf"), warm), warm)
    temperature = tl.load(values + TEMPERATURE)
    warm = tl.div_rn(warm, tl.where(temperature <= 0, 1.0, temperature))
    kept_codes = kept_of(warm, inside, tl.load(values + TOP_K), tl.load(values + TOP_P), V, BLOCK)
    lucky = warm
    if temperature > 0:
        lucky = warm + noise_of(seed, step, 0, v, EXACT)
    lucky = tl.where(kept_codes, lucky, -float("inf"))
    code = tl.minimum(tl.argmax(lucky, axis=0, tie_break_left=True), V - 1).to(tl.int64)
    times = tl.sum(tl.where(last == code, 1.0, 0.0), axis=0)
    if times >= limit:
        lucky = warm
        if temperature > 0:
            lucky = warm + noise_of(seed, step, 1, v, EXACT)
        lucky = tl.where(inside & (v != code), lucky, -float("inf"))
        code = tl.minimum(tl.argmax(lucky, axis=0, tie_break_left=True), V - 1).to(tl.int64)
    code = tl.where(code >= CODES, END, code).to(tl.int64)
    tl.debug_barrier()
    tl.store(window + w, tl.where(w == WINDOW - 1, code, behind), mask=w < WINDOW)
    tl.store(said + slot * V + code, 1)
    tl.store(kept + slot, code)
    tl.store(out + row, code)


def choose_again(logits: Tensor, slots: Tensor, steps: Tensor, lately: Lately) -> Tensor:
    """Codes [B] int64 of the first B rows of logits [*, at least V] float32. slots, steps [B]
    int64."""
    codes = slots.new_empty(len(slots))
    width, window = lately.said.shape[1], lately.recent.shape[1]
    _choose_again[(len(slots),)](
        logits,
        slots,
        steps,
        lately.sampling,
        lately.seeds,
        lately.mute.view(torch.uint8),
        lately.said.view(torch.uint8),
        lately.recent,
        lately.code,
        codes,
        lately.limit,
        width,
        logits.shape[1],
        triton.next_power_of_2(width),
        lately.sampling.shape[1],
        lately.codes,
        lately.end,
        window,
        triton.next_power_of_2(window),
        logits.is_cuda,
        num_warps=16,
    )
    return codes
