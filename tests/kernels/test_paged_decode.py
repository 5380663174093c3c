"""Attention of a decode step over pages, against plain torch."""

import pytest
import torch
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, noise
from voxserve.kernels.paged_decode import paged_decode, paged_decode_reference

UNITS, PAGES = 16, 12


@pytest.mark.parametrize(("heads", "keys", "size"), [(14, 2, 64), (4, 4, 16)])
def test_equals_plain_torch(heads: int, keys: int, size: int) -> None:
    """Rows at the edges of pages and within, each with pages of its own out of order."""
    positions = torch.tensor([0, UNITS - 1, UNITS, 3 * UNITS + 5], device=DEVICE)
    order = torch.tensor([7, 3, 11, 0, 5, 1, 9, 2, 8, 4, 10, 6], device=DEVICE)
    tables = torch.full((4, 5), PAGES, device=DEVICE)
    for row in range(4):
        tables[row, :4] = order.roll(3 * row)[:4]
    cache = noise((PAGES + 1, 2, UNITS, keys, size))
    queries = noise((4, heads, size))
    expected = paged_decode_reference(queries, cache, tables, positions)
    assert_close(paged_decode(queries, cache, tables, positions), expected, atol=ATOL, rtol=ATOL)


def test_what_lies_behind_a_position_is_not_read() -> None:
    cache = noise((3, 2, UNITS, 2, 64))
    tables, positions = torch.tensor([[0, 1]], device=DEVICE), torch.tensor([4], device=DEVICE)
    queries = noise((1, 4, 64))
    before = paged_decode(queries, cache, tables, positions)
    cache[0, :, 5:] = torch.nan
    cache[1] = torch.nan
    assert torch.equal(paged_decode(queries, cache, tables, positions), before)
