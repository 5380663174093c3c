from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxserve.engine.pages import Pages

TOTAL = 12
KEYS = ("a", "b", "c")
ACTIONS = st.one_of(
    st.tuples(st.just("take"), st.integers(0, 5)),
    st.tuples(st.just("give"), st.integers(0, 30)),
    st.tuples(st.just("keep"), st.sampled_from(KEYS)),
    st.tuples(st.just("share"), st.sampled_from(KEYS)),
)


@given(st.lists(ACTIONS, max_size=60))
def test_every_page_is_free_or_held_exactly_as_often_as_somebody_has_it(
    actions: list[tuple[str, int | str]],
) -> None:
    pages = Pages(TOTAL)
    requests: list[list[int]] = []
    kept: dict[str, tuple[int, ...]] = {}
    for action, value in actions:
        held = {page for request in requests for page in request}
        if action == "take" and isinstance(value, int):
            if len(held) + value > TOTAL:
                continue  # the scheduler never admits more than there is
            taken = pages.take(value)
            assert len(set(taken)) == value and not held & set(taken)
            requests.append(taken)
            kept = {key: kept[key] for key in kept if not set(kept[key]) & set(taken)}
        elif action == "give" and requests:
            pages.give(requests.pop(int(value) % len(requests)))
        elif action == "keep" and requests and str(value) not in kept:
            kept[str(value)] = tuple(requests[-1])
            pages.keep(str(value), requests[-1])
        elif action == "share":
            shared = pages.share(str(value))
            if str(value) in kept:
                assert shared == kept[str(value)]
                requests.append(list(shared))
        holders = Counter(page for request in requests for page in request)
        for key in list(kept):
            holders.update(kept[key])
        assert [pages.holders(page) for page in range(TOTAL)] == [
            holders[page] for page in range(TOTAL)
        ]
        assert pages.free == TOTAL - len(holders)


def test_a_shared_prefix_survives_its_first_owner_until_the_room_is_needed() -> None:
    pages = Pages(4)
    prompt = pages.take(2)
    pages.keep("clip", prompt)
    pages.give(prompt)
    assert pages.free == 2
    assert pages.share("clip") == tuple(prompt)
    pages.give(prompt)
    pages.take(3)
    assert pages.share("clip") == ()


def test_pages_in_use_are_never_taken_for_room() -> None:
    pages = Pages(4)
    prompt = pages.take(2)
    pages.keep("clip", prompt)
    with pytest.raises(MemoryError, match="3 pages wanted, 2 free of 4"):
        pages.take(3)
    assert pages.share("clip") == tuple(prompt)
