from hypothesis import given
from hypothesis import strategies as st

from voxserve.engine.clips import Clip, ClipRows
from voxserve.engine.pages import Pages

ROWS = 3
PAGES = 8
KEYS = tuple("abcde")
NEEDS = {key: {"flow": size} for key, size in zip(KEYS, (0, 1, 3, 4, 8), strict=True)}


@given(st.lists(st.tuples(st.sampled_from(("hold", "let_go", "encode")), st.sampled_from(KEYS))))
def test_a_held_row_and_its_pages_belong_to_one_clip_and_only_a_full_pool_refuses(
    actions: list[tuple[str, str]],
) -> None:
    pages = Pages(PAGES, first=100)
    clips = ClipRows(ROWS, {"flow": pages})
    held: dict[str, list[Clip]] = {}
    for action, key in actions:
        if action == "hold":
            clip = clips.hold(key, NEEDS[key])
            if clip is None:
                taken = sum(NEEDS[other]["flow"] for other in held)
                assert key not in held
                assert len(held) == ROWS or taken + NEEDS[key]["flow"] > PAGES
                continue
            same = held.setdefault(key, [])
            assert not same or same[0] is clip
            same.append(clip)
        elif key in held and action == "encode":
            clips.mark_encoded(key)
        elif key in held:
            held[key].pop()
            clips.let_go(key)
            if not held[key]:
                del held[key]
        assert len({same[0].row for same in held.values()}) == len(held)
        used = [page for same in held.values() for page in same[0].pages["flow"]]
        assert len(set(used)) == len(used) == sum(NEEDS[key]["flow"] for key in held)
        assert pages.free <= PAGES - len(used)


def _hear(clips: ClipRows, key: str, needs: dict[str, int]) -> None:
    assert clips.hold(key, needs)
    clips.mark_encoded(key)
    clips.let_go(key)


def test_an_encoded_clip_is_found_again_until_the_longest_unused_one_must_go() -> None:
    clips = ClipRows(2, {})
    for key in ("old", "new"):
        _hear(clips, key, {})
    clips.hold("third", {})
    clips.hold("new", {})
    assert clips.encoded("new") and not clips.encoded("third")
    assert clips.hold("old", {}) is None


def test_a_clip_goes_for_its_pages_too() -> None:
    clips = ClipRows(9, {"flow": Pages(PAGES)})
    for key in ("old", "new"):
        _hear(clips, key, {"flow": 3})
    assert clips.hold("third", {"flow": 4})
    assert clips.hold("new", {"flow": 3}) and clips.encoded("new")
    assert clips.hold("old", {"flow": 3}) is None


def test_a_clip_whose_encoder_never_ran_is_forgotten_with_its_last_request() -> None:
    clips = ClipRows(1, {})
    first = clips.hold("a", {})
    assert first and first.row == 0
    clips.let_go("a")
    second = clips.hold("b", {})
    assert second and second.row == 0
    assert not clips.encoded("b")
