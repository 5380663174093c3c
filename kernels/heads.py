"""Heads of a decoder layer as attention kernels take them out of the fused query, key and value
product, and the softmax that runs over blocks of positions. Shared by the attention kernels.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxserve.kernels.stream import row_factor


@dataclass(frozen=True, slots=True)
class Heads:
    """What a layer does to its heads. queries, keys: counts. query_gain, key_gain [D]: of their
    norms, None where they have none. cosines, sines [positions, D / 2] float32. eps: of all norms.
    hidden: width of the stream. scaled: the product has the stream's row factor already."""

    queries: int
    keys: int
    query_gain: Tensor | None
    key_gain: Tensor | None
    cosines: Tensor
    sines: Tensor
    eps: float
    hidden: int
    scaled: bool = False

    @property
    def size(self) -> int:
        return 2 * self.cosines.shape[1]

    @property
    def normed(self) -> bool:
        return self.query_gain is not None

    def gains(self) -> tuple[Tensor, Tensor]:
        """Of queries and keys as a kernel takes them, which reads them where there is a norm."""
        query, key = self.query_gain, self.key_gain
        return self.cosines if query is None else query, self.cosines if key is None else key

    def parts(self, squares: Tensor) -> int:
        """Parts of the stream's squares that a kernel has to add up, 0 where it needs no factor."""
        return 0 if self.scaled else squares.shape[1]


@triton.jit
def product_factor(squares, row, HIDDEN: tl.constexpr, PARTS: tl.constexpr, EPS: tl.constexpr):
    """The factor that a row of the product still lacks: 1 where PARTS is 0, see `Heads.parts`."""
    factor = 1.0
    if PARTS > 0:
        factor = row_factor(squares, row, HIDDEN, PARTS, EPS)
    return factor


@triton.jit
def turned_heads(
    at,
    there,
    gain,
    cosine,
    sine,
    scale,
    c,
    HALF: tl.constexpr,
    EPS: tl.constexpr,
    NORM: tl.constexpr,
):
    """Both halves [M, HALF] of the heads at pointers `at` [M], normed (NORM) and rotated.

    there [M] bool: other heads are zero. cosine, sine: broadcast over [M, HALF].
    """
    wanted = there[:, None] & (c >= 0)[None, :]
    low = tl.load(at[:, None] + c[None, :], mask=wanted, other=0.0).to(tl.float32) * scale
    high = tl.load(at[:, None] + HALF + c[None, :], mask=wanted, other=0.0).to(tl.float32) * scale
    if NORM:
        mean = (tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1)) / (2 * HALF)
        factor = tl.rsqrt(mean + EPS)[:, None]
        low = low * factor * tl.load(gain + c).to(tl.float32)[None, :]
        high = high * factor * tl.load(gain + HALF + c).to(tl.float32)[None, :]
    return low * cosine - high * sine, high * cosine + low * sine


@triton.jit
def attend_block(
    query_low, query_high, at, there, seen, c, most, weight, low_sum, high_sum, FAR: tl.constexpr
):
    """Take one block of positions into a running softmax.

    at [T]: pointers to keys, values lie FAR behind; there [T] bool; seen [M or 1, T] bool: what a
    query may look at. Returns the new most, weight [M], low_sum and high_sum [M, HALF].
    """
    half: tl.constexpr = query_low.shape[1]
    root: tl.constexpr = (2 * half) ** 0.5
    wanted = there[:, None] & (c >= 0)[None, :]
    keys = at[:, None] + c[None, :]
    keys_low = tl.load(keys, mask=wanted, other=0.0)
    keys_high = tl.load(keys + half, mask=wanted, other=0.0)
    values_low = tl.load(keys + FAR, mask=wanted, other=0.0)
    values_high = tl.load(keys + FAR + half, mask=wanted, other=0.0)
    scores = tl.dot(query_low, tl.trans(keys_low))
    scores = tl.dot(query_high, tl.trans(keys_high), scores)
    scores = tl.where(seen, scores / root, -1e30)
    higher = tl.maximum(most, tl.max(scores, axis=1))
    fade = tl.exp(most - higher)
    shares = tl.where(seen, tl.exp(scores - higher[:, None]), 0.0)
    weight = weight * fade + tl.sum(shares, axis=1)
    shares = shares.to(keys_low.dtype)
    low_sum = tl.dot(shares, values_low, low_sum * fade[:, None])
    high_sum = tl.dot(shares, values_high, high_sum * fade[:, None])
    return higher, weight, low_sum, high_sum


def reference_heads(
    qkv: Tensor, scale: Tensor, positions: Tensor, heads: Heads
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [R, Hq, D], keys and values [R, Hkv, D], float32, of qkv [R, *] at positions [R]."""
    size = heads.size
    product = qkv.float() if heads.scaled else qkv.float() * scale
    split = product.unflatten(1, (-1, size))
    queries, keys, values = split.split((heads.queries, heads.keys, heads.keys), dim=1)
    cosine = heads.cosines[positions].repeat(1, 2)[:, None]
    sine = heads.sines[positions].repeat(1, 2)[:, None]

    def turned(x: Tensor, gain: Tensor | None) -> Tensor:
        if gain is not None:
            x = torch.nn.functional.rms_norm(x, (size,), gain.float(), heads.eps)
        low, high = x.chunk(2, dim=2)
        return x * cosine + torch.cat((-high, low), dim=2) * sine

    return turned(queries, heads.query_gain), turned(keys, heads.key_gain), values


def reference_attend(queries: Tensor, cache: Tensor, table: Tensor, length: int) -> Tensor:
    """One row: queries [Hq, D] over the first `length` positions of pages table [P] -> [Hq, D]."""
    keys, values = (cache[table, side].flatten(0, 1)[:length].float() for side in (0, 1))
    group = queries.shape[0] // keys.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    scores = torch.einsum("hd,thd->ht", queries, keys) / queries.shape[1] ** 0.5
    return torch.einsum("ht,thd->hd", scores.softmax(dim=1), values)
