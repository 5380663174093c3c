"""The gate of the embedded voice: everyday sentences, spoken by the server, are understood."""

from pathlib import Path

import numpy as np
import pytest

from tests.api.server_process import ServerProcess
from tests.models.mini_rows import host
from tests.voice.listening import Audio, Listener, error_rate, opinion
from tests.voice.speaking import speak, speak_all
from voxserve.models.mini.config import SAMPLE_RATE_HZ
from voxserve.requests import SpeechRequest

SENTENCES = Path(__file__).with_name("gate_40.txt").read_text("utf-8").splitlines()
MOST_ERRORS, MOST_ERRORS_OF_ONE, LEAST_OPINION = 0.05, 0.5, 3.5
HEARD_S = 9.02
"""What an opinion is made of: a little more than its model takes."""
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def spoken(voice_server: ServerProcess) -> list[Audio]:
    return speak_all(voice_server, SENTENCES)


def test_the_words_are_understood(spoken: list[Audio], listener: Listener) -> None:
    heard = [
        listener.hear(audio, SAMPLE_RATE_HZ, text)
        for audio, text in zip(spoken, SENTENCES, strict=True)
    ]
    worst = max(heard, key=lambda one: one.error_rate)
    print(f"WER {error_rate(heard):.4f}, worst {worst.error_rate:.2f} {worst}")
    assert error_rate(heard) <= MOST_ERRORS
    assert worst.error_rate <= MOST_ERRORS_OF_ONE, worst


def test_the_sound_is_clean(spoken: list[Audio]) -> None:
    # Every fourth: an opinion costs more than the speech, and they hardly differ. One that lasts
    # other than HEARD_S would be asked for at every second of it and what it is repeated to.
    size = round(HEARD_S * SAMPLE_RATE_HZ)
    opinions = [opinion(np.resize(audio, size), SAMPLE_RATE_HZ) for audio in spoken[::4]]
    print(f"DNSMOS p808 {np.mean(opinions):.2f}, least {min(opinions):.2f}")
    assert np.mean(opinions) >= LEAST_OPINION


def test_every_sentence_ends_by_itself(spoken: list[Audio]) -> None:
    for audio, text in zip(spoken, SENTENCES, strict=True):
        steps = len(audio) // host().spec.samples_per_frame + host()._config.lag
        assert steps < host().prompt(SpeechRequest(text=text)).max_steps, text
        assert np.abs(audio[-1200:]).max() < 0.1, f"cut off: {text}"


def test_streamed_audio_is_whole_audio(voice_server: ServerProcess) -> None:
    text = SENTENCES[10]
    whole = speak(voice_server, text)
    fields = {"input": text, "response_format": "pcm", "seed": 1, "stream": True}
    with voice_server.client.stream("POST", "/v1/audio/speech", json=fields) as answer:
        pcm = np.frombuffer(b"".join(answer.iter_bytes()), "<i2")
    assert np.array_equal(pcm.astype(np.float32) / np.float32(32768), whole)
