"""Attention over pages: any number of pages and parts, page edges, padding, whole prompts."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels.heads import EPS, heads, qkv
from tests.kernels.rig import ATOL, DEVICE, noise
from voxserve.kernels import tiles
from voxserve.kernels.decode_attention import decode_attention, splits
from voxserve.kernels.heads import reference_attend, reference_heads
from voxserve.kernels.prompt_attention import prompt_attention
from voxserve.kernels.stream import reference_scale

UNITS, PAGES, SLOTS = 16, 9, 4
TABLES = torch.tensor([[2, 0, 5], [8, 8, 8], [1, 7, 4], [3, 6, 8], [0, 0, 0]])


def cache() -> Tensor:
    """Eight pages and the spare one, full of values that somebody else may need."""
    return noise((PAGES, 2, UNITS, 2, 32))


@pytest.mark.parametrize("split", [1, 2, 4])
def test_decode(split: int) -> None:
    """Contexts of 1, 16, 17 and 48 positions, and a row of padding."""
    at, pages = heads(), cache()
    product, stream = qkv(16)
    on: dict[str, Any] = {"device": DEVICE}
    slots = torch.tensor([0, 2, 3, 0, SLOTS], **on)
    prompts = torch.tensor([16, 0, 10, 1, 40], **on)
    steps = torch.tensor([1, 38, 1, 33, 3], **on)
    slots = slots[[0, 1, 2, 4]]
    steps = steps[[0, 1, 2, 4]]
    positions = prompts[slots] + steps - 1
    assert positions[:3].tolist() == [16, 47, 1]
    expected_pages = pages.clone()
    rows = len(slots)
    queries, keys, values = reference_heads(
        product[:rows], reference_scale(stream, EPS)[:rows], positions, at
    )
    wanted = []
    for row in range(rows - 1):
        position, table = int(positions[row]), TABLES[int(slots[row])].to(DEVICE)
        page = table[position // UNITS]
        expected_pages[page, 0, position % UNITS] = keys[row].to(pages.dtype)
        expected_pages[page, 1, position % UNITS] = values[row].to(pages.dtype)
        wanted.append(reference_attend(queries[row], expected_pages, table, position + 1))
    arrived = torch.zeros(64, dtype=torch.int32, **on)
    out = torch.zeros(16, 4 * 32, dtype=product.dtype, **on)
    decode_attention(
        product,
        stream.squares,
        slots,
        steps,
        prompts,
        TABLES.to(DEVICE),
        pages,
        at,
        arrived,
        out,
        split=split,
    )
    got = out[: rows - 1].float().view(-1, 4, 32)
    torch.testing.assert_close(got, torch.stack(wanted), atol=ATOL, rtol=ATOL)
    torch.testing.assert_close(pages[:-1], expected_pages[:-1], atol=ATOL, rtol=ATOL)
    assert not arrived.any() and not out[rows:].any() and out.isfinite().all()


@pytest.mark.parametrize("fixed", [False, True])
def test_a_prompt(fixed: bool) -> None:
    """Of two pages, beside a shorter one and one of padding."""
    at, pages, steps = heads(), cache(), 32
    product, stream = qkv(3 * steps)
    on: dict[str, Any] = {"device": DEVICE}
    slots, lengths = torch.tensor([2, 0, SLOTS], **on), torch.tensor([32, 5, 32], **on)
    positions = torch.arange(steps, **on).repeat(3)
    queries, keys, values = reference_heads(product, reference_scale(stream, EPS), positions, at)
    expected_pages = pages.clone()
    tables = TABLES.to(DEVICE)
    for row in range(2):
        for t in range(int(lengths[row])):
            page = tables[slots[row], t // UNITS]
            expected_pages[page, 0, t % UNITS] = keys[row * steps + t].to(pages.dtype)
            expected_pages[page, 1, t % UNITS] = values[row * steps + t].to(pages.dtype)
    with tiles.fixed_tiles(fixed):
        got = prompt_attention(product, stream.squares, slots, lengths, tables, pages, at, steps)
    torch.testing.assert_close(pages[:-1], expected_pages[:-1], atol=ATOL, rtol=ATOL)
    for row, t in ((0, 0), (0, 15), (0, 16), (0, 31), (1, 0), (1, 4)):
        line = row * steps + t
        wanted = reference_attend(queries[line], expected_pages, tables[slots[row]], t + 1)
        out = got[line].float().view(4, 32)
        torch.testing.assert_close(out, wanted, atol=ATOL, rtol=ATOL)
    assert got.isfinite().all()


def test_fixed_tiles_do_not_look_at_the_bucket() -> None:
    """A prompt of 16 positions gets the same bits in a bucket of 16, and second in one of 32."""
    at, (product, stream), tables = heads(), qkv(64), TABLES.to(DEVICE)
    length = torch.tensor([16], device=DEVICE)
    prompt, slot = torch.arange(16, device=DEVICE), torch.tensor([2], device=DEVICE)
    with tiles.fixed_tiles():
        alone = prompt_attention(
            product[prompt], stream.squares[prompt], slot, length, tables, cache(), at, 16
        )
        lines = torch.cat((prompt + 32, prompt + 16, prompt, prompt + 48))
        wide = prompt_attention(
            product[lines],
            stream.squares[lines],
            torch.tensor([0, 2], device=DEVICE),
            torch.tensor([20, 16], device=DEVICE),
            tables,
            cache(),
            at,
            32,
        )
    assert torch.equal(wide[32:48], alone)


def test_few_rows_share_their_pages_out() -> None:
    with tiles.on_sms(100):
        assert [splits(rows, 8) for rows in (1, 4, 16, 128)] == [16, 4, 1, 1]
        with tiles.fixed_tiles():
            assert splits(1, 8) == 1
