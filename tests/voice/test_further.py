"""200 sentences of kinds that the voice was not trained on: nothing is skipped, nothing loops."""

from pathlib import Path

import numpy as np
import pytest

from tests.api.server_process import ServerProcess
from tests.voice.listening import Heard, Listener, covered
from tests.voice.speaking import speak_all
from voxserve.models.mini.config import SAMPLE_RATE_HZ

LINES = Path(__file__).with_name("further_200.tsv").read_text("utf-8").splitlines()
SENTENCES = [line.split("\t")[1] for line in LINES]
SHORT_WORDS = 6
WELL_COVERED, SHARE_WELL_COVERED = 0.9, 0.97
LEAST_OF_SECOND_HALF, MOST_TOO_LONG = 0.5, 1.5
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def heard(voice_server: ServerProcess, listener: Listener) -> list[Heard]:
    spoken = speak_all(voice_server, SENTENCES)
    return [
        listener.hear(audio, SAMPLE_RATE_HZ, text)
        for audio, text in zip(spoken, SENTENCES, strict=True)
    ]


def test_the_list_is_whole() -> None:
    assert len(set(SENTENCES)) == 200
    assert {line.split("\t")[0] for line in LINES} == {
        "question",
        "list",
        "name",
        "number",
        "short",
        "long",
    }


def test_sentences_are_said_to_their_end(heard: list[Heard]) -> None:
    longer = [one for one in heard if len(one.meant) >= SHORT_WORDS]
    for one in longer:
        half = len(one.meant) // 2
        assert covered(one.meant[half:], one.heard) >= LEAST_OF_SECOND_HALF, one
        assert len(one.heard) <= MOST_TOO_LONG * len(one.meant), one
    poor = [one for one in longer if one.coverage < WELL_COVERED]
    print(f"{len(longer)} sentences, {len(poor)} poorly covered: {poor}")
    assert len(poor) <= (1 - SHARE_WELL_COVERED) * len(longer)


def test_short_ones_are_understood(heard: list[Heard]) -> None:
    short = [one for one in heard if len(one.meant) < SHORT_WORDS]
    words = [covered(one.meant, one.heard) for one in short]
    share = np.average(words, weights=[len(one.meant) for one in short])
    print(f"{len(short)} short ones, {share:.3f} of their words heard")
    assert share >= WELL_COVERED
