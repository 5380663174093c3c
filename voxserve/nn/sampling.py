"""Choosing codes from logits; rows of one batch may all differ in their parameters.

The order is that of Hugging Face's processors, which the published models were tuned with:
repetition penalty, minimum length and suppressed codes, temperature, top-k, top-p, then one draw.
The draw adds Gumbel noise that depends on (seed, step, codebook) alone, never on the batch.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685
_BITS = 23
_MOST_CODES = 2**16
_TINIEST_P = 1e-9


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters of B rows in the form that `choose` wants, made once a step by `of`.

    divisor: [B, 1] temperature. luck: [B, 1] factor of the noise, 0 for a greedy row.
    top_k: [B, 1] int64. top_p: [B, 1], above 1 where nothing is cut.
    """

    divisor: Tensor
    luck: Tensor
    top_k: Tensor
    top_p: Tensor

    @classmethod
    def of(cls, temperature: Tensor, top_k: Tensor, top_p: Tensor) -> Self:
        """temperature [B] float32: 0 takes the likeliest code. top_k [B]: below 1 keeps all.
        top_p [B]: 1 keeps all."""
        greedy = temperature <= 0
        return cls(
            divisor=torch.where(greedy, 1.0, temperature)[:, None],
            luck=(~greedy).float()[:, None],
            top_k=torch.where(top_k < 1, _MOST_CODES, top_k).long()[:, None],
            top_p=torch.where(top_p >= 1, 2.0, top_p.clamp(min=_TINIEST_P))[:, None],
        )


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


def gumbel(seeds: Tensor, steps: Tensor, codebooks: range, size: int) -> Tensor:
    """Standard Gumbel noise [B, len(codebooks), size] float32, a pure function of its arguments.

    seeds, steps: [B] int64. Row b, codebook k, code v depends on (seeds[b], steps[b], k, v) alone,
    so a part of the codebooks or of the codes has the same noise as in the whole.
    """
    key = _mix(_mix(seeds + _GOLDEN) + steps)
    first = torch.arange(codebooks.start, codebooks.stop, device=seeds.device) * _MOST_CODES
    place = first[:, None] + torch.arange(size, device=seeds.device)
    bits = _mix(key[:, None, None] + place * _GOLDEN) >> (64 - _BITS) & ((1 << _BITS) - 1)
    uniform = (bits.float() + 0.5) * (0.5**_BITS)
    return -torch.log(-torch.log(uniform))


def choose(logits: Tensor, sampling: Sampling, noise: Tensor) -> Tensor:
    """One code a row: [B] int64.

    logits: [B, V] float32, -inf where forbidden. noise: [B, V], from `gumbel`.
    top-k keeps ties with the k-th; top-p keeps the fewest codes whose probability reaches p.
    """
    warm = logits / sampling.divisor
    ranked = warm.sort(dim=1, descending=True).values
    least = ranked.gather(1, sampling.top_k.clamp(max=logits.shape[1]) - 1)
    ranked = ranked.masked_fill(ranked < least, -torch.inf)
    share = ranked.softmax(dim=1)
    inside = share.cumsum(dim=1) - share < sampling.top_p
    kept = inside.sum(dim=1, keepdim=True).clamp(min=1)
    least = torch.maximum(least, ranked.gather(1, kept - 1))
    lucky = torch.addcmul(warm, noise, sampling.luck)
    return lucky.masked_fill(warm < least, -torch.inf).argmax(dim=1)
