"""Texts spoken by a running server."""

import io
import wave
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.api.server_process import ServerProcess
from tests.voice.listening import Audio
from voxserve.models.mini.config import SAMPLE_RATE_HZ

TOGETHER = 4


def speak(server: ServerProcess, text: str, **fields: object) -> Audio:
    """One text as float32 samples at SAMPLE_RATE_HZ."""
    answer = server.client.post(
        "/v1/audio/speech",
        json={"input": text, "response_format": "wav", "seed": 1, **fields},
        timeout=300,
    )
    assert answer.status_code == 200, answer.text
    with wave.open(io.BytesIO(answer.content)) as file:
        assert file.getframerate() == SAMPLE_RATE_HZ
        pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return pcm.astype(np.float32) / np.float32(32768)


def speak_all(server: ServerProcess, texts: Sequence[str]) -> list[Audio]:
    """Several at a time, so that the server batches."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(lambda text: speak(server, text), texts))
