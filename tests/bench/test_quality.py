"""Listening: how words are compared, and a whole run against a scripted stub, which is silent."""

import asyncio

import pytest

from voxserve.bench import quality, workloads
from voxserve.bench.hearing import Heard, error_rate, words
from voxserve.bench.quality import Quality, lines
from voxserve.bench.stub import even, stubs
from voxserve.bench.targets import Target
from voxserve.errors import InvalidRequestError

SENTENCES = 2


def _measured(url: str, rate: float) -> Quality:
    return asyncio.run(
        quality.measure(
            Target("voxserve", url),
            workloads.load("libritts"),
            {},
            lambda *_: None,
            rate=rate,
            window_s=1.0,
            sentences=SENTENCES,
            seed=1,
            slo_ms=1000,
            processes=1,
            sample_rate_hz=24_000,
            command=["bench", "quality"],
        )
    )


def test_words_are_compared_as_they_sound() -> None:
    assert words("Mr. O'Neil didn't pay $5 - he’ll pay 12.") == words(
        "mister oneil did not pay five dollars he will pay twelve"
    )
    assert words("“Grey—ok?”") == ["gray", "okay"]


def test_errors_are_counted_over_all_words() -> None:
    heard = [Heard(["a", "b", "c"], ["a", "c"]), Heard(["d"], ["d"])]
    assert [one.error_rate for one in heard] == [pytest.approx(1 / 3), 0.0]
    assert error_rate(heard) == 0.25
    assert heard[0].coverage == pytest.approx(2 / 3)


def test_the_same_requests_are_heard_alone_and_under_load() -> None:
    with stubs(even(0.02, 0.02, 0.4, 3), 1) as url:
        made = _measured(url, rate=10.0)
    assert made.stub
    assert [ear.id for ear in made.idle.ears] == [ear.id for ear in made.loaded.ears]
    assert made.idle.sentences == made.loaded.sentences == SENTENCES
    assert made.same_audio == made.same_length == SENTENCES
    assert made.loaded.attainment == 1.0 and made.idle.attainment is None
    assert "nothing to hear" in lines(made)[0]


def test_a_load_shorter_than_the_sentences_is_named() -> None:
    with pytest.raises(InvalidRequestError, match="2 sentences are to be heard"):
        _measured("http://127.0.0.1:9", rate=0.01)
