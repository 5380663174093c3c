"""Rotation, attention over a sliding window kept in the request's slot, and appending to it.

The window of a slot is a ring: the keys and values of position p lie at p % (W - 1), the keys
rotated. A program does one head of one row: it reads the window in place, attends, and only then
writes the step's keys and values over those that no later step can see.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional


@triton.jit
def _rotated(low, high, real, cosine, sine):
    """Both halves of heads, turned, in the type they are stored in."""
    kind = low.dtype.element_ty
    x = tl.load(low, mask=real, other=0.0).to(tl.float32)
    y = tl.load(high, mask=real, other=0.0).to(tl.float32)
    return (x * cosine - y * sine).to(kind), (y * cosine + x * sine).to(kind)


@triton.jit(do_not_specialize=["F", "layer"])
def _window_attention(
    qkv,
    out,
    window,
    frequencies,
    slots,
    seen,
    fresh,
    lengths,
    scale,
    F,
    layer,
    LAYERS: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    KEPT: tl.constexpr,
    KP: tl.constexpr,
    FP: tl.constexpr,
):
    h = tl.program_id(0)
    b = tl.program_id(1)
    HALF: tl.constexpr = D // 2
    WIDTH: tl.constexpr = H * D
    slot = tl.load(slots + b)
    before = tl.where(tl.load(fresh + b) != 0, 0, tl.load(seen + slot))
    length = tl.load(lengths + b)
    f = tl.arange(0, FP)
    d = tl.arange(0, HALF)
    wide = tl.arange(0, D)
    real = (f < F)[:, None]
    line = qkv + (b * F + f).to(tl.int64)[:, None] * (3 * WIDTH) + h * D
    low, high = line + d[None, :], line + HALF + d[None, :]
    angle = (before + f).to(tl.float32)[:, None] * tl.load(frequencies + d)[None, :]
    cosine = tl.cos(angle)
    sine = tl.sin(angle)
    kind = qkv.dtype.element_ty
    low_q, high_q = _rotated(low, high, real, cosine, sine)
    low_k, high_k = _rotated(low + WIDTH, high + WIDTH, real, cosine, sine)
    v = tl.load(line + 2 * WIDTH + wide[None, :], mask=real, other=0.0)

    j = tl.arange(0, KP)
    place = before - KEPT + j
    held = (j < KEPT) & (place >= 0)
    keys = window + (slot * LAYERS + layer).to(tl.int64) * (2 * KEPT * WIDTH) + h * D
    values = keys + KEPT * WIDTH
    ring = (tl.where(held, place, 0) % KEPT) * WIDTH
    old = keys + ring[None, :] + d[:, None]
    past = tl.dot(low_q, tl.load(old, mask=held[None, :], other=0.0))
    past = tl.dot(high_q, tl.load(old + HALF, mask=held[None, :], other=0.0), past)
    old_v = tl.load(values + ring[:, None] + wide[None, :], mask=held[:, None], other=0.0)
    near = held[None, :] & (place[None, :] >= before + f[:, None] - KEPT)
    past = tl.where(near, past * scale, float("-inf"))
    now = tl.dot(low_q, low_k.T)
    now = tl.dot(high_q, high_k.T, now)
    behind = f[:, None] - f[None, :]
    now = tl.where((behind >= 0) & (behind <= KEPT), now * scale, float("-inf"))
    most = tl.maximum(tl.max(past, axis=1), tl.max(now, axis=1))
    past = tl.exp(past - most[:, None])
    now = tl.exp(now - most[:, None])
    total = tl.sum(past, axis=1) + tl.sum(now, axis=1)
    mixed = tl.dot(past.to(kind), old_v)
    mixed = tl.dot(now.to(kind), v, mixed) / total[:, None]
    at = (b * F + f).to(tl.int64)[:, None] * WIDTH + h * D + wide[None, :]
    tl.store(out + at, mixed.to(kind), mask=real)

    tl.debug_barrier()  # every thread has read the window before any writes to it
    kept = ((f < length) & (f >= length - KEPT))[:, None]
    new = ((before + f) % KEPT)[:, None] * WIDTH
    tl.store(keys + new + d[None, :], low_k, mask=kept)
    tl.store(keys + new + HALF + d[None, :], high_k, mask=kept)
    tl.store(values + new + wide[None, :], v, mask=kept)


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of one launch. slots, lengths (real frames): [B] int64; fresh: [B] bool, rows whose
    state counts as zero; seen: [slots + 1] int64, frames that came before."""

    slots: Tensor
    lengths: Tensor
    fresh: Tensor
    seen: Tensor


def window_attention(
    qkv: Tensor, out: Tensor, window: Tensor, layer: int, rows: StepRows, frequencies: Tensor
) -> None:
    """Attend and append.

    qkv: [B, F, 3 * H * D], not yet rotated. out: [B, F, H * D], is filled. window: [slots + 1,
    layers, 2, W - 1, H, D], of `layer` the first `lengths` frames are appended in place.
    frequencies: [D / 2] float32. Matches `window_attention_reference`.
    """
    _, layers, _, kept, heads, head = window.shape
    count, frames = qkv.shape[:2]
    _window_attention[(heads, count)](
        qkv,
        out,
        window,
        frequencies,
        rows.slots,
        rows.seen,
        rows.fresh,
        rows.lengths,
        head**-0.5,
        frames,
        layer,
        LAYERS=layers,
        H=heads,
        D=head,
        KEPT=kept,
        KP=triton.next_power_of_2(max(kept, 16)),
        FP=triton.next_power_of_2(max(frames, 16)),
        num_warps=4,
    )


def window_attention_reference(
    qkv: Tensor, window: Tensor, layer: int, rows: StepRows, frequencies: Tensor
) -> Tensor:
    """[B, F, H * D]; `window` is advanced in place, one row after the other."""
    _, _, _, kept, heads, head = window.shape
    out = []
    for b, slot in enumerate(rows.slots.tolist()):
        before = 0 if rows.fresh[b] else int(rows.seen[slot])
        places = torch.arange(before, before + qkv.shape[1], device=qkv.device)
        queries, keys, values = qkv[b].view(len(places), 3, heads, head).unbind(1)
        queries, keys = (_rotate(x, places, frequencies) for x in (queries, keys))
        old = torch.arange(max(0, before - kept), before, device=qkv.device)
        ring = window[slot, layer]
        every = torch.cat((old, places))
        behind = places[:, None] - every
        mixed = functional.scaled_dot_product_attention(
            queries.transpose(0, 1),
            torch.cat((ring[0, old % kept], keys)).transpose(0, 1),
            torch.cat((ring[1, old % kept], values)).transpose(0, 1),
            attn_mask=(behind >= 0) & (behind <= kept),
        )
        out.append(mixed.transpose(0, 1).flatten(1))
        length = int(rows.lengths[b])
        first = max(0, length - kept)
        at = places[first:length] % kept
        ring[0, at], ring[1, at] = keys[first:length], values[first:length]
    return torch.stack(out)


def _rotate(x: Tensor, places: Tensor, frequencies: Tensor) -> Tensor:
    """Turn heads x [F, H, D] by the angles of their positions."""
    angle = places[:, None, None].float() * frequencies
    low, high = x.float().chunk(2, dim=-1)
    cosine, sine = angle.cos(), angle.sin()
    both = (low * cosine - high * sine, high * cosine + low * sine)
    return torch.cat(both, dim=-1).to(x.dtype)
