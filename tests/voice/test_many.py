"""V41 on the embedded voice: sixty-four at once, in every format, and each says its own text."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.api.server_process import ServerProcess
from tests.audio.sounds import decode
from tests.voice.listening import Audio, Heard, Listener, covered, error_rate
from voxserve.audio.formats import FORMATS

FOLDER = Path(__file__).parent
TEXTS = [
    *(FOLDER / "gate_40.txt").read_text("utf-8").splitlines(),
    *(line.split("\t")[1] for line in (FOLDER / "further_200.tsv").read_text("utf-8").splitlines()),
][:64]
MOST_ERRORS = 0.08
"""Some of these sentences are hard for voice and listener alike, alone as well."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def patient(tmp_path: Path) -> ServerProcess:
    settings = {"model": "mini", "api": {"queue_timeout_s": 600}}
    return ServerProcess(tmp_path, settings)


def test_v41_each_says_its_own_text(patient: ServerProcess, listener: Listener) -> None:
    names = list(FORMATS.keys() - {"pcm"})

    def speak(number: int) -> tuple[Audio, int]:
        fields = {"input": TEXTS[number], "response_format": names[number % len(names)]}
        answer = patient.client.post("/v1/audio/speech", json=fields, timeout=900)
        assert answer.status_code == 200, answer.text
        samples, rate_hz = decode(answer.content)
        return samples.astype(np.float32) / np.float32(32_768), rate_hz

    with patient:
        patient.wait_ready()
        with ThreadPoolExecutor(64) as pool:
            spoken = list(pool.map(speak, range(64)))
    heard = [
        listener.hear(audio, rate_hz, text)
        for (audio, rate_hz), text in zip(spoken, TEXTS, strict=True)
    ]
    for number, one in enumerate(heard):
        scores = [_likeness(Heard(other.meant, one.heard)) for other in heard]
        assert int(np.argmax(scores)) == number, (TEXTS[number], one.heard)
    print(f"WER {error_rate(heard):.4f}")
    assert error_rate(heard) <= MOST_ERRORS


def _likeness(one: Heard) -> float:
    """Of what was heard to a text, both ways, so that a long text is not like every short one."""
    return covered(one.meant, one.heard) + covered(one.heard, one.meant)
