"""V13 on the embedded voice: a text of the greatest length is said whole, and nothing twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.server_process import ServerProcess
from tests.voice.listening import Listener
from tests.voice.speaking import speak
from voxserve.models.mini.config import SAMPLE_RATE_HZ

SENTENCES = Path(__file__).with_name("gate_40.txt").read_text("utf-8").splitlines()
LIMIT = 1000
LEAST_COVERAGE, MOST_ERRORS = 0.98, 0.05
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[ServerProcess]:
    settings = {"model": "mini", "api": {"max_input_chars": LIMIT}}
    with ServerProcess(tmp_path, settings) as running:
        running.wait_ready()
        yield running


def test_v13_the_longest_text_is_said_whole(limited: ServerProcess, listener: Listener) -> None:
    text = " ".join(SENTENCES)[:LIMIT].rpartition(" ")[0]
    text += "." * (LIMIT - len(text))
    assert len(text) == LIMIT
    audio = speak(limited, text)
    heard = listener.hear(audio, SAMPLE_RATE_HZ, text)
    print(f"{len(audio) / SAMPLE_RATE_HZ:.0f} s, {heard.coverage:.3f}, {heard.error_rate:.3f}")
    assert heard.coverage >= LEAST_COVERAGE, heard
    assert heard.error_rate <= MOST_ERRORS, heard
    assert limited.speech(input=text + "a").json()["error"]["code"] == "input_too_long"
