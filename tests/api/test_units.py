"""Texts in as many requests as a model needs."""

import asyncio

import pytest

from voxserve.api.schemas import VoiceFields
from voxserve.api.speech_request import SpeechPlan, resolve
from voxserve.api.units import TextLimits, UnitQueue, fits, unit_seed, whole_units
from voxserve.api.ws_text import Granularity, UtteranceText
from voxserve.checkpoints import find
from voxserve.config import Config
from voxserve.errors import InvalidRequestError
from voxserve.plugin import HostLogic
from voxserve.requests import SpeechRequest

SENTENCE = "The quick brown fox jumps over the lazy dog, as it always did. "
CONTEXT = 2048


@pytest.fixture(scope="module")
def host() -> HostLogic:
    plugin, checkpoint = find("tiny", dummy=False)
    return plugin.host(checkpoint)


@pytest.fixture(scope="module")
def plan(host: HostLogic) -> SpeechPlan:
    return resolve(VoiceFields(seed=7), host, Config(), format_="pcm", silence=True)


def utterance(
    host: HostLogic, plan: SpeechPlan, pieces: list[str], granularity: Granularity
) -> list[str]:
    """The texts of the units that the pieces come to."""
    text = UtteranceText(host, plan, TextLimits(16_384, CONTEXT), granularity)
    for piece in pieces:
        for _ in text.append(piece):
            pass
    asyncio.run(text.end())
    texts = []
    while text.queue.startable:
        unit = text.queue.head()
        assert unit.ended and unit.input_tokens > 0
        texts.append(unit.text)
        text.queue.drop_head()
    assert text.queue.drained
    return texts


def test_what_fits_is_one_unit(host: HostLogic) -> None:
    (unit,) = whole_units(host, SpeechRequest(SENTENCE * 20), CONTEXT)
    assert unit.text == (SENTENCE * 20).strip()


def test_long_text_is_cut_between_sentences(host: HostLogic) -> None:
    units = whole_units(host, SpeechRequest(SENTENCE * 100), CONTEXT)
    assert len(units) > 3
    assert " ".join(unit.text for unit in units) == (SENTENCE * 100).strip()
    assert all(unit.text.endswith("did.") for unit in units)
    assert all(fits(host, SpeechRequest(unit.text), unit.text, CONTEXT) for unit in units)
    whole = SENTENCE.strip().count("") - 1
    assert sum(unit.input_tokens for unit in units) == 100 * whole + (100 - len(units))


def test_the_engine_may_hold_less_than_the_model(host: HostLogic) -> None:
    """Positions are what a request needs with all the steps that it may take."""
    request = SpeechRequest(SENTENCE * 10)
    assert len(whole_units(host, request, 2048)) == 1
    units = whole_units(host, request, 256)
    assert len(units) > 3
    for unit in units:
        prompt = unit.prompt()
        assert len(prompt.rows) + prompt.max_steps - 1 <= 256


@pytest.mark.parametrize("text", ["a" * 5000, "一" * 5000, "一二三。" * 2000])
def test_text_without_sentences_is_cut_too(host: HostLogic, text: str) -> None:
    units = whole_units(host, SpeechRequest(text), CONTEXT)
    assert len(units) > 1 and "".join(unit.text for unit in units) == text


def test_other_errors_are_raised_for_what_they_are(host: HostLogic) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        whole_units(host, SpeechRequest(SENTENCE * 100, voice="nobody"), CONTEXT)
    assert refused.value.code == "voice_not_found"


def test_seeds_differ_and_are_the_same_again() -> None:
    seeds = [unit_seed(7, index) for index in range(100)]
    assert seeds[0] == 7 and len(set(seeds)) == 100
    assert seeds == [unit_seed(7, index) for index in range(100)]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_live_text_is_one_unit_while_it_fits(host: HostLogic, plan: SpeechPlan) -> None:
    words = (SENTENCE * 15).split(" ")
    (unit,) = utterance(host, plan, [f"{word} " for word in words], "auto")
    assert unit.strip() == (SENTENCE * 15).strip()


@pytest.mark.parametrize("size", [1, 7, 64, 6400])
def test_live_text_goes_on_in_another_unit(host: HostLogic, plan: SpeechPlan, size: int) -> None:
    text = SENTENCE * 100
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    units = utterance(host, plan, pieces, "auto")
    assert len(units) > 3 and "".join(units).strip() == text.strip()
    assert all(unit.strip().endswith("did.") for unit in units)


@pytest.mark.parametrize("text", ["word " * 1500, "一二" * 2000, "a" * 4000])
def test_live_text_without_sentences_goes_on_too(
    host: HostLogic, plan: SpeechPlan, text: str
) -> None:
    units = utterance(host, plan, [text], "none")
    assert len(units) > 1 and "".join(units).strip() == text.strip()


def test_clauses_and_sentences_are_units(host: HostLogic, plan: SpeechPlan) -> None:
    pieces = ["Dr. Sm", "ith paid $3.", "50 to the old man,", " he said. 😀 O", "k?"]
    assert utterance(host, plan, pieces, "sentence") == [
        "Dr. Smith paid $3.50 to the old man, he said.",
        "😀 Ok?",
    ]
    assert utterance(host, plan, pieces, "clause") == [
        "Dr. Smith paid $3.50 to the old man,",
        "he said.",
        "😀 Ok?",
    ]


@pytest.mark.parametrize("granularity", ["auto", "sentence"])
def test_silence_is_no_unit(host: HostLogic, plan: SpeechPlan, granularity: Granularity) -> None:
    assert utterance(host, plan, ["…", " 😀"], granularity) == []


def test_nothing_is_drained_before_it_is_closed() -> None:
    queue = UnitQueue()
    assert not queue.drained and not queue.startable
    queue.closed = True
    assert queue.drained
