"""V40's pitch, on the embedded voice: faster and slower speech is the same voice."""

import numpy as np
import pytest

from tests.api.server_process import ServerProcess
from tests.audio.sounds import pitch_hz
from tests.voice.speaking import speak
from voxserve.models.mini.config import SAMPLE_RATE_HZ

TEXT = "The morning train leaves in ten minutes, and nobody knows where we are going."


@pytest.mark.timeout(600)
def test_v40_pitch_stays(voice_server: ServerProcess) -> None:
    plain = speak(voice_server, TEXT)
    spoken_hz = pitch_hz((plain * 32_768).astype(np.int16), SAMPLE_RATE_HZ)
    for speed in (0.5, 2.0, 4.0):
        made = speak(voice_server, TEXT, speed=speed)
        assert len(plain) / len(made) == pytest.approx(speed, rel=0.03)
        made_hz = pitch_hz((made * 32_768).astype(np.int16), SAMPLE_RATE_HZ)
        assert made_hz == pytest.approx(spoken_hz, rel=0.03), f"at speed {speed}"
