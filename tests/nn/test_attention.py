"""Keys and values in four places, each against attention written out with loops."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from voxserve.nn.attention import GrowingKv, PagedKv, Paging, WindowKv, attention, causal, tail

HEADS, KV_HEADS, HEAD = 4, 2, 6


def heads(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def step(rows: int, count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of `count` positions."""
    keys = (rows, count, KV_HEADS, HEAD)
    return heads(rows, count, HEADS, HEAD, seed=seed), heads(*keys, seed=seed + 1), heads(*keys)


def plain(queries: Tensor, keys: Tensor, values: Tensor, reach: int) -> Tensor:
    """queries [T, H, D], keys, values [T, Hkv, D]: each looks at itself and `reach` - 1 before."""
    out = torch.empty_like(queries)
    for t in range(len(queries)):
        for head in range(HEADS):
            seen = slice(max(0, t - reach + 1), t + 1)
            shared = head // (HEADS // KV_HEADS)
            scores = keys[seen, shared] @ queries[t, head] / math.sqrt(HEAD)
            out[t, head] = scores.softmax(0) @ values[seen, shared]
    return out


def test_causal_equals_loops() -> None:
    queries, keys, values = step(2, 7, seed=1)
    out = causal(queries, keys, values)
    for row in range(2):
        assert_close(out[row], plain(queries[row], keys[row], values[row], 7))


def test_without_a_mask_every_query_sees_every_key() -> None:
    queries, keys, values = step(1, 5, seed=2)
    full = torch.ones(1, 5, 5, dtype=torch.bool)
    assert_close(attention(queries, keys, values, None), attention(queries, keys, values, full))


def test_steps_within_a_frame_equal_one_pass() -> None:
    queries, keys, values = step(3, 6, seed=3)
    cache = GrowingKv()
    cuts = [slice(0, 2), *(slice(t, t + 1) for t in range(2, 6))]
    parts = [cache(queries[:, cut], keys[:, cut], values[:, cut]) for cut in cuts]
    assert_close(torch.cat(parts, dim=1), causal(queries, keys, values))


UNITS, SPARE = 4, 12


def paging(pages: Tensor, positions: Tensor, valid: Tensor | None = None, **fresh: bool) -> Paging:
    valid = torch.ones_like(positions, dtype=torch.bool) if valid is None else valid
    return Paging(
        pages, positions, valid, units=UNITS, spare=SPARE, fresh=fresh.get("fresh", False)
    )


def pages_of_two_rows() -> Tensor:
    return torch.tensor([[7, 2, 9], [0, 11, 5]])


def test_pages_equal_one_pass_for_rows_of_different_lengths() -> None:
    cache = torch.full((SPARE + 1, 2, UNITS, KV_HEADS, HEAD), 3.0, dtype=torch.float64)
    queries, keys, values = step(2, 11, seed=4)
    starts = [5, 2]
    at = torch.arange(5).expand(2, 5)
    begin = paging(pages_of_two_rows(), at, at < torch.tensor(starts)[:, None], fresh=True)
    first = PagedKv(cache, begin)(queries[:, :5], keys[:, :5], values[:, :5])
    for row, count in enumerate(starts):
        expected = plain(queries[row, :count], keys[row, :count], values[row, :count], 99)
        assert_close(first[row, :count], expected)
    for turn in range(6):
        at = torch.tensor(starts)[:, None] + turn
        taken = [
            x.gather(1, at[..., None, None].expand(-1, 1, *x.shape[2:]))
            for x in (queries, keys, values)
        ]
        out = PagedKv(cache, paging(pages_of_two_rows(), at))(*taken)
        for row, start in enumerate(starts):
            end = start + turn + 1
            expected = plain(queries[row, :end], keys[row, :end], values[row, :end], 99)
            assert_close(out[row, 0], expected[-1])


def test_padding_writes_to_the_spare_page_alone() -> None:
    cache = torch.zeros(SPARE + 1, 2, UNITS, KV_HEADS, HEAD, dtype=torch.float64)
    given = step(2, 3, seed=5)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    at = torch.arange(3).expand(2, 3)
    PagedKv(cache, paging(pages_of_two_rows(), at, nothing, fresh=True))(*given)
    assert not cache[:SPARE].any()
    assert cache[SPARE].any()


def test_a_wrong_page_is_noticed() -> None:
    cache = torch.zeros(SPARE + 1, 2, UNITS, KV_HEADS, HEAD, dtype=torch.float64)
    queries, keys, values = step(1, 6, seed=6)
    at = torch.arange(5)[None]
    PagedKv(cache, paging(torch.tensor([[1, 2]]), at, fresh=True))(
        queries[:, :5], keys[:, :5], values[:, :5]
    )
    wrong = paging(torch.tensor([[3, 2]]), torch.tensor([[5]]))
    out = PagedKv(cache, wrong)(queries[:, 5:], keys[:, 5:], values[:, 5:])
    assert not torch.allclose(out[0, 0], plain(queries[0], keys[0], values[0], 99)[-1])


@pytest.mark.parametrize("cuts", [[12], [1] * 12, [3, 5, 4], [10, 2]], ids=str)
@pytest.mark.parametrize("window", [2, 5, 30])
def test_window_equals_loops_for_any_cuts(cuts: list[int], window: int) -> None:
    queries, keys, values = step(1, 12, seed=7)
    past = torch.full((1, 2, window - 1, KV_HEADS, HEAD), 9.0, dtype=torch.float64)
    parts, begin = [], 0
    for count in cuts:
        cut = slice(begin, begin + count)
        attend = WindowKv(past, torch.tensor([begin]), torch.tensor([count]), window)
        parts.append(attend(queries[:, cut], keys[:, cut], values[:, cut]))
        past, begin = attend.after, begin + count
    assert_close(torch.cat(parts, dim=1)[0], plain(queries[0], keys[0], values[0], window))


def test_window_goes_on_behind_the_real_frames() -> None:
    queries, keys, values = step(1, 9, seed=8)
    past = torch.zeros(1, 2, 3, KV_HEADS, HEAD, dtype=torch.float64)
    padded = [x[:, :6].clone() for x in (queries, keys, values)]
    for x in padded:
        x[:, 4:] = 7.0
    first = WindowKv(past, torch.tensor([0]), torch.tensor([4]), 4)
    begin = first(padded[0], padded[1], padded[2])[:, :4]
    second = WindowKv(first.after, torch.tensor([4]), torch.tensor([5]), 4)
    rest = second(queries[:, 4:], keys[:, 4:], values[:, 4:])
    expected = plain(queries[0], keys[0], values[0], 4)
    assert_close(torch.cat((begin, rest), dim=1)[0], expected)


def test_tail_is_what_comes_last() -> None:
    x = torch.arange(14).view(2, 1, 7)
    assert tail(x, torch.tensor([4, 1]), 3).tolist() == [[[4, 5, 6]], [[8, 9, 10]]]
