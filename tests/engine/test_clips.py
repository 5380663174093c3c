from hypothesis import given
from hypothesis import strategies as st

from voxserve.engine.clips import ClipRows

ROWS = 3
KEYS = tuple("abcde")


@given(st.lists(st.tuples(st.sampled_from(("hold", "let_go", "encode")), st.sampled_from(KEYS))))
def test_a_held_row_belongs_to_one_clip_and_only_a_full_pool_refuses(
    actions: list[tuple[str, str]],
) -> None:
    clips = ClipRows(ROWS)
    held: dict[str, list[int]] = {}
    for action, key in actions:
        if action == "hold":
            row = clips.hold(key)
            if row is None:
                assert key not in held and len(held) == ROWS
                continue
            rows = held.setdefault(key, [])
            assert not rows or rows[0] == row
            rows.append(row)
        elif key in held and action == "encode":
            clips.mark_encoded(key)
        elif key in held:
            held[key].pop()
            clips.let_go(key)
            if not held[key]:
                del held[key]
        assert len({rows[0] for rows in held.values()}) == len(held)


def test_an_encoded_clip_is_found_again_until_the_longest_unused_one_must_go() -> None:
    clips = ClipRows(2)
    for key in ("old", "new"):
        clips.hold(key)
        clips.mark_encoded(key)
        clips.let_go(key)
    clips.hold("third")
    clips.hold("new")
    assert clips.encoded("new") and not clips.encoded("third")
    assert clips.hold("old") is None


def test_a_clip_whose_encoder_never_ran_is_forgotten_with_its_last_request() -> None:
    clips = ClipRows(1)
    assert clips.hold("a") == 0
    clips.let_go("a")
    assert clips.hold("b") == 0
    assert not clips.encoded("b")
