import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxserve.engine.clips import NO_ROW, Clip, ClipRows
from voxserve.engine.pages import Pages

ROWS = 3
PAGES = 8
KEYS = tuple("abcde")
NEEDS = {key: {"flow": size} for key, size in zip(KEYS, (0, 1, 3, 4, 8), strict=True)}


@given(st.lists(st.tuples(st.sampled_from(("hold", "place", "let_go")), st.sampled_from(KEYS))))
def test_a_placed_row_and_its_pages_belong_to_one_clip_and_only_a_full_pool_lacks_room(
    actions: list[tuple[str, str]],
) -> None:
    pages = Pages(PAGES, first=100)
    clips = ClipRows(ROWS, {"flow": pages})
    held: dict[str, list[Clip]] = {}
    for action, key in actions:
        if action == "hold":
            clip = clips.hold(key, NEEDS[key])
            same = held.setdefault(key, [])
            assert not same or same[0] is clip
            same.append(clip)
        elif key in held and action == "place" and held[key][0].row == NO_ROW:
            try:
                clips.place(held[key][0])
            except MemoryError:
                placed = _placed(held)
                taken = sum(clip.needs["flow"] for clip in placed)
                assert len(placed) == ROWS or taken + NEEDS[key]["flow"] > PAGES
            else:
                held[key][0].encoded = True
        elif key in held and action == "let_go":
            held[key].pop()
            clips.let_go(key)
            if not held[key]:
                del held[key]
        placed = _placed(held)
        assert len({clip.row for clip in placed}) == len(placed)
        used = [page for clip in placed for page in clip.pages["flow"]]
        assert len(set(used)) == len(used) == sum(clip.needs["flow"] for clip in placed)
        assert pages.free <= PAGES - len(used)


def _placed(held: dict[str, list[Clip]]) -> list[Clip]:
    return [same[0] for same in held.values() if same[0].row != NO_ROW]


def _hear(clips: ClipRows, key: str, needs: dict[str, int]) -> None:
    _placed_now(clips, key, needs).encoded = True
    clips.let_go(key)


def _placed_now(clips: ClipRows, key: str, needs: dict[str, int]) -> Clip:
    clip = clips.hold(key, needs)
    clips.place(clip)
    return clip


def test_an_encoded_clip_is_found_again_until_the_longest_unused_one_must_go() -> None:
    clips = ClipRows(2, {})
    for key in ("old", "new"):
        _hear(clips, key, {})
    _placed_now(clips, "third", {})
    assert clips.hold("new", {}).encoded and not clips.encoded("third")
    assert not clips.encoded("old")
    with pytest.raises(MemoryError):
        clips.place(clips.hold("old", {}))


def test_a_clip_goes_for_its_pages_too() -> None:
    clips = ClipRows(9, {"flow": Pages(PAGES)})
    for key in ("old", "new"):
        _hear(clips, key, {"flow": 3})
    _placed_now(clips, "third", {"flow": 4})
    assert clips.hold("new", {"flow": 3}).encoded
    with pytest.raises(MemoryError, match="no room"):
        _placed_now(clips, "old", {"flow": 3})


def test_clips_that_wait_take_no_room() -> None:
    clips = ClipRows(1, {"flow": Pages(PAGES)})
    waiting = [clips.hold(key, NEEDS[key]) for key in KEYS]
    assert len({clip.number for clip in waiting}) == len(KEYS)
    clips.place(waiting[-1])
    assert waiting[-1].row == 0 and len(waiting[-1].pages["flow"]) == PAGES


def test_a_clip_whose_encoder_never_ran_or_failed_is_forgotten() -> None:
    clips = ClipRows(1, {"flow": Pages(PAGES)})
    failed = _placed_now(clips, "a", {"flow": PAGES})
    clips.displace(failed)
    other = _placed_now(clips, "b", {"flow": PAGES})
    assert (failed.row, other.row) == (NO_ROW, 0)
    for key in ("a", "b"):
        clips.let_go(key)
    assert clips.hold("a", {"flow": 1}).needs == {"flow": 1}
    assert not clips.encoded("b")
