"""Attention over pages of blocks against plain torch."""

import pytest
import torch
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, noise
from voxserve.kernels.block_attention import (
    BlockRows,
    block_attention,
    block_attention_reference,
)

HEADS, HEAD, UNITS, PAGES = 2, 64, 50, 9
RATES = 1.0 / 10_000 ** (torch.arange(0, HEAD, 2).float() / HEAD)


def rows(first: list[int], count: list[int], blocks: int) -> BlockRows:
    """Rows whose pages are handed out from the last one down; the spare page fills the tables."""
    table = torch.full((len(first), 6), PAGES)
    free = list(range(PAGES))
    keep = torch.zeros(len(first), blocks, dtype=torch.bool)
    for row, (before, frames) in enumerate(zip(first, count, strict=True)):
        own = -(-frames // UNITS)
        keep[row, :own] = True
        for place in range(before + own):
            table[row, place] = free.pop()
    places = torch.tensor(first)[:, None] * UNITS + torch.arange(UNITS * blocks)
    angles = places[..., None] * RATES
    made = (
        table,
        torch.tensor(first),
        torch.tensor(count),
        keep,
        torch.stack((angles.cos(), angles.sin())),
    )
    return BlockRows(*(part.to(DEVICE) for part in made))


@pytest.mark.parametrize(
    ("first", "count", "blocks", "split"),
    [
        ([0, 3, 1], [50, 50, 18], 1, 1),
        ([0, 4], [50, 18], 1, 2),
        ([2, 0], [50, 0], 1, 4),
        ([0, 0], [150, 100], 3, 1),
    ],
    ids=["chunks", "chunks in parts", "padding", "clips"],
)
def test_equals_plain_torch(first: list[int], count: list[int], blocks: int, split: int) -> None:
    """Rows of different age, a short last block, a padding row, and whole clips in one step. Of the
    pages only those of the step's own blocks may change."""
    at = rows(first, count, blocks)
    qkv = noise((2 * len(first), UNITS * blocks, 3 * HEADS * HEAD))
    cache = noise((PAGES + 1, 3, 2, 2, UNITS, HEADS, HEAD))
    expected_cache = cache.clone()
    expected = block_attention_reference(qkv, expected_cache[:, 1], at)
    out = torch.full_like(expected, 7.0)
    arrived = torch.zeros(qkv.shape[0] * blocks * HEADS, dtype=torch.int32, device=DEVICE)
    block_attention(qkv, out, cache[:, 1], at, arrived, split=split)
    assert not arrived.any()
    assert_close(out, expected, atol=ATOL, rtol=ATOL)
    assert_close(cache, expected_cache, atol=ATOL, rtol=ATOL)
    assert torch.equal(cache[:, 0], expected_cache[:, 0])
