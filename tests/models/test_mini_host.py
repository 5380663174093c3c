"""The host half of mini: everyday text in words, words in phonemes, phonemes in blocks."""

import contextlib
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.models.mini_rows import bundled, host
from voxserve.errors import CheckpointError, InvalidRequestError
from voxserve.models.mini.host import MiniHost, blocks
from voxserve.models.mini.normalise import normalise
from voxserve.plugin import Checkpoint
from voxserve.requests import Prompt, ReferenceClip, SpeechRequest

SPOKEN = {
    "It costs $3.50, or £1,250.99 for 2.": "It costs three dollars and fifty cents, or one "
    "thousand two hundred fifty pounds and ninety nine pence for two.",
    "$1 and $0.05 and €2": "one dollar and five cents and two euros",
    "$2.5 million, ¥300": "two point five million dollars, three hundred yen",
    "On 10/12/2019 at 9:30am.": "On October twelfth, twenty nineteen at nine thirty A M",
    "2024-02-29 was a Thursday.": "February twenty ninth, twenty twenty four was a Thursday.",
    "At 7:05, 12:00 and 5 p.m.": "At seven oh five, twelve o'clock and five P M",
    "Mar. 3rd, 2024": "March third, twenty twenty four",
    "the 4th of July": "the fourth of July",
    "In the 1990s and in 1905, 2005, 1066.": "In the nineteen nineties and in nineteen oh five, "
    "two thousand five, one thousand sixty six.",
    "Dr. Smith, 221 Baker St.": "Doctor Smith, two hundred twenty one Baker Street",
    "near St. Mary's": "near Saint Mary's",
    "e.g. apples, pears, etc.": "for example apples, pears, et cetera",
    "5km at 900 km/h, -5°C": "five kilometers at nine hundred kilometers per hour, "
    "minus five degrees Celsius",
    "1 kg, 3.5%": "one kilogram, three point five percent",
    "the U.S., the U.S.A.": "the U S, the U S A.",
    "Chapter IV": "Chapter four",
    "3/4 cup, 2 1/2 cups": "three quarters cup, two and a half cups",
    "2-3 times, 1914–1918": "two to three times, nineteen fourteen to nineteen eighteen",
    "Call 555-123-4567.": "Call five five five, one two three, four five six seven.",
    "See https://www.example.com/docs.": "See example dot com slash docs.",
    "mail bob.lee@mail.co.uk": "mail bob dot lee at mail dot co dot uk",
    "R&D + 50 = ?": "R and D plus fifty equals?",
    "#5, 100%!": "number five, one hundred percent!",
    "A380 and 007": "A three hundred eighty and zero zero seven",
    "3k users, 1,234,567": "three thousand users, one million two hundred thirty four thousand "
    "five hundred sixty seven",
    "21st": "twenty first",
    "Mr. and Mrs. Lee, open 24/7": "Mister and Missus Lee, open twenty four seven",
    "10%–20%, $5-10, COVID-19": "ten percent to twenty percent, five dollars to ten, "
    "COVID-nineteen",
    "well (mostly) -- yes": "well, mostly, — yes",
    "“Wait,” she said…": "Wait, she said…",
    "Really?!": "Really?",
}
READ = {
    "Hello there.": "həlˈO ðˈɛɹ.",
    "the apple, the pear": "ði ˈæpᵊl, ðə pˈɛɹ",
    "a dog": "ɐ dˈɔɡ",
    "to eat": "tʊ ˈit",
    "I have read it.": "ˌI hæv ɹˈɛd ɪt.",
    "They live here.": "ðˌA lˈɪv hˈɪɹ.",
    "the live show": "ðə lˈIv ʃˈO",
    "Is it? As you said, Us": "ˌɪz ɪt? ˌæz ju sˈɛd, ˌʌs",
    "GPUs, A's": "ʤˌipˌijˈuz, ˈAz",
    "the FBI": "ði ˌɛfbˌiˈI",
    "vitamin A": "vˈITəmən ˈA",
    "voxserves": "vˈɑkssɜɹvz",
    "well-known": "wˈɛlnˈOn",
    "cats dogs horses": "kˈæts dˈɔɡz hˈɔɹsᵻz",
}


def prompt(text: str, **fields: Any) -> Prompt:
    return host().prompt(SpeechRequest(text=text, **fields))


@pytest.mark.parametrize("text", SPOKEN)
def test_text_in_words(text: str) -> None:
    assert normalise(text) == SPOKEN[text]


@pytest.mark.parametrize("text", READ)
def test_words_in_phonemes(text: str) -> None:
    assert host()._reader.read(text) == READ[text]


def test_every_word_gets_a_reading() -> None:
    for text in ("Xzqwv", "Łódź", "naïve", "GPT-4o", "Zürich's", "rhythms", "co-op", "ok", "'tis"):
        assert host()._reader.read(text).strip(" .,"), text


def test_short_text_is_one_block() -> None:
    given = prompt("Hello there.")
    assert given.rows[0, 0] == given.rows[-1, 0] == 0
    assert (given.rows >= 0).all()
    assert len(given.rows) == given.input_tokens == len("həlˈO ðˈɛɹ.") + 2
    assert given.inject.shape == (0, 1)
    assert not given.text_open


def test_long_text_is_whole_blocks_cut_between_sentences() -> None:
    given = prompt("This sentence has a fair number of words in it. " * 12)
    assert len(given.rows) % 256 == 0
    inside = given.rows[:, 0].reshape(-1, 256) >= 0
    assert given.input_tokens == inside.sum()
    period = host()._config.phonemes["."]
    for row, places in zip(given.rows[:, 0].reshape(-1, 256), inside, strict=True):
        assert row[places][-2:].tolist() == [period, 0]


def test_blocks_lose_nothing() -> None:
    for text in ("a" * 700, "ab, " * 200, "one two. " * 90, "x y " * 300):
        parts = list(blocks(text.strip()))
        assert all(len(part) <= 254 for part in parts)
        assert "".join(parts).replace(" ", "") == text.replace(" ", "")


def test_a_shorter_cap_may_be_asked_for() -> None:
    whole = prompt("Hello there.").max_steps
    assert prompt("Hello there.", max_frames=3).max_steps == 3 + 5
    assert prompt("Hello there.", max_frames=100_000).max_steps == whole


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": "… !"}, "input"),
        ({"text": "A long road. " * 600}, "input"),
        ({"text": "Hi.", "voice": "clare"}, "voice"),
        ({"text": "Hi.", "language": "fr"}, "language"),
        ({"text": "Hi.", "instructions": "sadly"}, "instructions"),
        ({"text": "Hi.", "task_type": "Base"}, "task_type"),
        ({"text": "Hi.", "clip": ReferenceClip("k", np.zeros(9, np.float32))}, "ref_audio"),
        ({"text": "Hi.", "temperature": 9.0}, "temperature"),
        ({"text": "Hi.", "repetition_penalty": 1.1}, "repetition_penalty"),
        ({"text": "Hi.", "max_frames": 0}, "max_new_tokens"),
    ],
)
def test_what_mini_cannot_do_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        host().prompt(SpeechRequest(**fields))
    assert refused.value.param == param


def test_a_near_miss_of_the_voice_is_hinted_at() -> None:
    with pytest.raises(InvalidRequestError, match="did you mean clara"):
        prompt("Hi.", voice="clare")
    assert prompt("Hi.", voice="Clara", language="en-US").max_steps


def test_live_text_is_refused() -> None:
    assert not host().info.text_streaming
    with pytest.raises(InvalidRequestError):
        host().live_text(SpeechRequest(text=""))


def test_a_checkpoint_without_its_lexicon_says_so(tmp_path: Any) -> None:
    with pytest.raises(CheckpointError, match="lexicon"):
        MiniHost(Checkpoint("mini", tmp_path, bundled().config))
    with pytest.raises(CheckpointError, match="folder"):
        MiniHost(replace(bundled(), folder=None))


def test_the_host_half_needs_no_torch() -> None:
    code = (
        "import sys, json;"
        "from voxserve.models.mini import plugin; from voxserve.plugin import Checkpoint;"
        "from voxserve.requests import SpeechRequest;"
        "c = json.loads((plugin.bundled / 'config.json').read_text('utf-8'));"
        "h = plugin.host(Checkpoint('mini', plugin.bundled, c));"
        "assert len(h.prompt(SpeechRequest(text='Hello.')).rows) > 3; h.steps(2);"
        "assert 'torch' not in sys.modules and 'onnxruntime' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("part", ["www.", "a.", "1,", "1/", "9:", "x@", "$", "- ", "A ", "("])
def test_no_text_takes_long(part: str) -> None:
    """Patterns that look back and forth would take seconds for these."""
    text = part * (4096 // len(part))
    before = time.thread_time()
    with contextlib.suppress(InvalidRequestError):
        prompt(text)
    assert time.thread_time() - before < 1
