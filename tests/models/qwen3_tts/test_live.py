"""Text that arrives in pieces, cut anywhere, makes the prompt and the speech of the whole text."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.parity.qwen3_tts.checkpoint import speech_like
from tests.parity.qwen3_tts.rig import host, rig_for
from voxserve.errors import InvalidRequestError
from voxserve.models.qwen3_tts.tokens import LiveTokens
from voxserve.requests import Int32Array, Prompt, ReferenceClip, SpeechRequest
from voxserve.text.bpe import StandInWords, TextTokens
from voxserve.text.clean import clean

CUSTOM = "custom_voice-1b7"
TEXT = "Hello there! It's 1234.56 — 你好，世界。今天天气很好 👍👩‍👩‍👧 e\u0301t\u00e9\n\n  The news."
ALPHABET = "aeinorst hdwl'’.,!\n\t\r 019你好世界今天😀👍\u200d👩e\u0301가\u11a8\u1100\u1161क\u093f—"
STREAMED = {"non_streaming_mode": False, "subtalker_temperature": 0.0}


def halves(text: str) -> list[str]:
    """UTF-16 units of a text, one a piece, pairs torn apart."""
    data = text.encode("utf-16-le", "surrogatepass")
    return [data[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(data), 2)]


def live_ids(tokens: TextTokens, pieces: Sequence[str]) -> list[int]:
    live = LiveTokens(tokens)
    ids = [i for piece in pieces for i in live.feed(piece)]
    return ids + live.end()


@settings(deadline=None, max_examples=300)
@given(st.lists(st.text(ALPHABET, max_size=6), max_size=12))
@example(halves(TEXT))
@example(["  \n", " \n", "x"])
@example(["!", "\n", "\n", " "])
@example(["it'", "r", "e", "x"])
@example(["'ds"])
@example(["-'", "d", "s"])
def test_any_pieces_give_the_ids_of_the_whole(pieces: list[str]) -> None:
    whole = "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    for tokens in (host(CUSTOM).tokens, TextTokens(StandInWords(1000))):
        assert live_ids(tokens, pieces) == tokens.encode(clean(whole))


@settings(deadline=None, max_examples=200)
@given(st.text("aehinorstdw", min_size=1, max_size=14), st.text("aehinorstdw", max_size=6))
def test_settled_ids_stay_whatever_follows(word: str, more: str) -> None:
    words = host(CUSTOM).tokens.words
    certain = words.settled(word)
    assert words.parts(word)[:certain] == words.parts(word + more)[:certain]


def test_little_is_held_back() -> None:
    """A long word without spaces flows: Chinese sentences do not wait for their full stop."""
    live = LiveTokens(host(CUSTOM).tokens)
    text = "今天天气很好我们去公园散步你叫什么名字" * 3
    given_ = [len(live.feed(character)) for character in text]
    whole = len(host(CUSTOM).tokens.encode(text))
    assert whole - sum(given_) <= 8
    assert max(given_) <= 9


@pytest.mark.parametrize(
    "text", ["天" * 2000, "!" * 2000, "a" * 2000, "-a" * 1000, "\u093f" * 2000]
)
def test_no_text_makes_a_piece_slow(text: str) -> None:
    """2000 pieces of one character, of texts that are one long word or nearly so."""
    live = LiveTokens(host(CUSTOM).tokens)
    start = time.process_time()
    ids = [i for character in text for i in live.feed(character)] + live.end()
    assert time.process_time() - start < 6
    assert ids == host(CUSTOM).tokens.encode(text)


def live_prompt(request: SpeechRequest, name: str, pieces: Sequence[str]) -> Prompt:
    """The prompt from the first rows that come, with all later rows appended to its text."""
    live = host(name).live_text(replace(request, text=""))
    prompt: Prompt | None = None
    later: list[Int32Array] = []
    for piece in pieces:
        rows = live.append(piece)
        if prompt is None and len(rows):
            prompt = live.prompt(rows, ended=False)
            assert prompt.text_open
        elif len(rows):
            later.append(rows)
    rest = live.end()
    if prompt is None:
        return live.prompt(rest, ended=True)
    return replace(prompt, inject=np.concatenate([prompt.inject, *later, rest]))


@pytest.mark.parametrize("clip_s", [None, 1.07, 4.0])
@pytest.mark.parametrize("pieces", [halves(TEXT), [TEXT], [TEXT[:20], TEXT[20:21], TEXT[21:]]])
def test_live_prompt_is_the_streamed_one(pieces: list[str], clip_s: float | None) -> None:
    """Also after a clip, whose frames want as much text as there are of them first."""
    name, clip = CUSTOM, None
    if clip_s is not None:
        name, clip = "base-1b7", ReferenceClip("c", speech_like(clip_s), "The quick brown fox.")
    request = SpeechRequest(text=TEXT, clip=clip, extra=STREAMED)
    whole = host(name).prompt(request)
    live = live_prompt(request, name, pieces)
    assert live.rows.tolist() == whole.rows.tolist()
    assert live.inject.tolist() == whole.inject.tolist()


def test_live_text_speaks_the_same_codes() -> None:
    request = SpeechRequest(text=TEXT, temperature=0.0, max_frames=20, extra=STREAMED)
    rig = rig_for(CUSTOM)
    whole, live = rig.speak(
        [host(CUSTOM).prompt(request), live_prompt(request, CUSTOM, halves(TEXT))]
    )
    assert whole.tolist() == live.tolist()


def test_prompt_starts_with_the_first_word() -> None:
    live = host(CUSTOM).live_text(SpeechRequest(text=""))
    rows = live.append("Hello ")
    assert len(rows) > 0
    prompt = live.prompt(rows, ended=False)
    assert prompt.text_open
    assert len(prompt.rows) + prompt.max_steps == host(CUSTOM).spec.max_context


def test_what_live_text_refuses() -> None:
    custom = host(CUSTOM)
    with pytest.raises(InvalidRequestError, match="can only be streamed"):
        custom.live_text(SpeechRequest(text="", extra={"non_streaming_mode": True}))
    with pytest.raises(InvalidRequestError, match="voice 'nobody' is unknown"):
        custom.live_text(SpeechRequest(text="", voice="nobody"))
    live = custom.live_text(SpeechRequest(text=""))
    with pytest.raises(InvalidRequestError, match="the text is empty"):
        live.prompt(live.end(), ended=True)
    live = custom.live_text(SpeechRequest(text=""))
    with pytest.raises(InvalidRequestError, match="tokens, at most 400"):
        for _ in range(500):
            live.append("a ")
