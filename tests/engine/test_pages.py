import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxserve.engine.pages import Pages

TOTAL = 12
FIRST = 5


@given(st.lists(st.tuples(st.sampled_from(("take", "give")), st.integers(0, 30)), max_size=60))
def test_every_page_is_free_or_somebody_has_it(actions: list[tuple[str, int]]) -> None:
    pages = Pages(TOTAL, FIRST)
    requests: list[list[int]] = []
    for action, value in actions:
        held = {page for request in requests for page in request}
        if action == "take":
            if len(held) + value > TOTAL:
                continue  # the scheduler never admits more than there is
            taken = pages.take(value)
            assert len(set(taken)) == value and not held & set(taken)
            assert all(FIRST <= page < FIRST + TOTAL for page in taken)
            requests.append(taken)
        elif requests:
            pages.give(requests.pop(value % len(requests)))
        assert pages.free == TOTAL - sum(len(request) for request in requests)


def test_more_pages_than_there_are_free_is_a_bug_in_words() -> None:
    pages = Pages(4)
    pages.take(2)
    with pytest.raises(MemoryError, match="3 pages wanted, 2 free of 4"):
        pages.take(3)


def test_a_page_comes_back_once() -> None:
    pages = Pages(4)
    taken = pages.take(2)
    pages.give(taken)
    with pytest.raises(AssertionError, match="given back twice"):
        pages.give(taken)
