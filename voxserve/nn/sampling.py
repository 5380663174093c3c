"""Choosing codes from logits; rows of one batch may all differ in their parameters.

The order is that of Hugging Face's processors, which the published models were tuned with:
repetition penalty, minimum length and suppressed codes, temperature, top-k, top-p, then one draw.
The draw adds Gumbel noise that depends on (seed, step, codebook) alone, never on the batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685
_BITS = 23


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of B rows, each [B] float32.

    temperature: 0 takes the likeliest code. top_k: below 1 keeps all. top_p: 1 keeps all.
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor


def penalise(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Make codes that were already said less likely (Keskar et al., 2019, by presence).

    logits [B, V] float32; seen [B, V] bool; penalty [B], 1 changes nothing.
    """
    factor = penalty[:, None]
    return torch.where(seen, torch.where(logits > 0, logits / factor, logits * factor), logits)


def _mix(x: Tensor) -> Tensor:
    """A bijection of int64 that spreads every bit (the finaliser of splitmix64, wrapping)."""
    x = (x ^ ((x >> 30) & 0x3_FFFF_FFFF)) * _MIX_1
    x = (x ^ ((x >> 27) & 0x1F_FFFF_FFFF)) * _MIX_2
    return x ^ ((x >> 31) & 0x1_FFFF_FFFF)


def _wrap(number: int) -> int:
    """The int64 that `number` is modulo 2^64."""
    return (number + 2**63) % 2**64 - 2**63


def gumbel(seeds: Tensor, steps: Tensor, codebook: int, size: int) -> Tensor:
    """Standard Gumbel noise [B, size] float32, a pure function of its arguments.

    seeds, steps: [B] int64. Row b, column v depends on (seeds[b], steps[b], codebook, v) alone.
    """
    key = _mix(_mix(seeds + _GOLDEN) + steps)
    key = _mix(key + _wrap(codebook * _GOLDEN))
    place = torch.arange(size, dtype=torch.int64, device=seeds.device)
    bits = _mix(key[:, None] + place * _GOLDEN) >> (64 - _BITS) & ((1 << _BITS) - 1)
    uniform = (bits.float() + 0.5) * (0.5**_BITS)
    return -torch.log(-torch.log(uniform))


def choose(logits: Tensor, sampling: Sampling, noise: Tensor) -> Tensor:
    """One code a row: [B] int64.

    logits: [B, V] float32, -inf where forbidden. noise: [B, V], from `gumbel`.
    top-k keeps ties with the k-th; top-p keeps the fewest codes whose probability reaches p.
    """
    greedy = sampling.temperature <= 0
    warm = logits / torch.where(greedy, 1.0, sampling.temperature)[:, None]
    size = logits.shape[1]
    ranked = warm.sort(dim=1, descending=True).values
    wanted = torch.where(sampling.top_k < 1, float(size), sampling.top_k).long().clamp(max=size)
    least = ranked.gather(1, wanted[:, None] - 1)
    ranked = ranked.masked_fill(ranked < least, -torch.inf)
    share = ranked.softmax(dim=1)
    before = share.cumsum(dim=1) - share
    inside = (before < sampling.top_p[:, None]) | (sampling.top_p[:, None] >= 1)
    kept = (inside & (ranked > -torch.inf)).sum(dim=1).clamp(min=1)
    least = torch.maximum(least, ranked.gather(1, kept[:, None] - 1))
    drawn = (warm + noise).masked_fill(warm < least, -torch.inf).argmax(dim=1)
    return torch.where(greedy, logits.argmax(dim=1), drawn)
