import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxserve.errors import InvalidRequestError
from voxserve.text.clean import LiveCleaner, clean, ends_sentence, speakable

# Characters that compose, join, pair up or vanish, beside plain ones.
TRICKY = st.text(
    alphabet="ab .\n\u200b\u200d\ufeffe\u0301\u0323\u0308각가\u1100\u1161\u11a8"
    "\u09c7\u09be\u0b47\u0b56ऩ\u0928\u093c👩🚀你é",
    max_size=30,
)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  Hello \n", "Hello"),
        ("e\u0301", "\u00e9"),
        ("\u200b\ufeff \t", ""),
        ("a\u200bb", "a\u200bb"),
        ("", ""),
    ],
)
def test_clean(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@pytest.mark.parametrize("text", ["a\0b", "\ud83d", "x\ude00y"])
def test_clean_refuses(text: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        clean(text)
    assert refused.value.param == "input"


@given(text=TRICKY, data=st.data())
def test_any_cuts_equal_the_whole(text: str, data: st.DataObject) -> None:
    units = text.encode("utf-16-le")
    cuts = data.draw(st.lists(st.integers(0, len(units) // 2), max_size=12).map(sorted))
    edges = [0, *cuts, len(units) // 2]
    cleaner = LiveCleaner()
    pieces = [
        cleaner.feed(units[2 * begin : 2 * end].decode("utf-16-le", "surrogatepass"))
        for begin, end in itertools.pairwise(edges)
    ]
    pieces.append(cleaner.end())
    assert "".join(pieces) == clean(text)


@given(text=TRICKY)
def test_settled_characters_never_change(text: str) -> None:
    cleaner = LiveCleaner()
    settled = "".join(cleaner.feed(character) for character in text)
    assert unicodedata.is_normalized("NFC", settled)
    assert clean(text).startswith(settled)


def test_refused_piece_changes_nothing() -> None:
    cleaner = LiveCleaner()
    out = cleaner.feed("ab")
    for bad in ("\0", "\ude00", "\ud83dx"):
        with pytest.raises(InvalidRequestError):
            cleaner.feed(bad)
    assert out + cleaner.feed("c") + cleaner.end() == "abc"


def test_half_a_pair_at_the_end_is_refused() -> None:
    cleaner = LiveCleaner()
    cleaner.feed("a\ud83d")
    with pytest.raises(InvalidRequestError):
        cleaner.end()


def test_endless_marks_are_not_held_back_for_ever() -> None:
    cleaner = LiveCleaner()
    assert len(cleaner.feed("a" + "\u0301" * 500)) > 400


@pytest.mark.parametrize("text", ["a", "7", "次", "€", "100 %", "ş", "٣"])
def test_speakable(text: str) -> None:
    assert speakable(text)


@pytest.mark.parametrize("text", ["", "😀😀", "…", "?!", "—", "()", "\u0301"])
def test_not_speakable(text: str) -> None:
    assert not speakable(text)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("Hello.", True),
        ('"Hello!" ', True),
        ("你好。", True),
        ("क्या?", True),
        ("नमस्ते।", True),
        ("Hello", False),
        ("3.5", False),
        ("", False),
    ],
)
def test_ends_sentence(text: str, ends: bool) -> None:
    assert ends_sentence(text) is ends
