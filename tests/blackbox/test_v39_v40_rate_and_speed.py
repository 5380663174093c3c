"""V39 and V40: other sample rates and another speed, streamed. Their pitch: tests/voice."""

import io
import time
import wave

import numpy as np
import pytest

from tests.api.server_process import ServerProcess, forced
from tests.audio.sounds import Int16Array, decode

FRAMES = 25
SECONDS = 2.0


def pcm(server: ServerProcess, **fields: object) -> Int16Array:
    response = server.speech(**forced(FRAMES, response_format="pcm", seed=1, **fields))
    assert response.status_code == 200, response.text
    return np.frombuffer(response.content, "<i2")


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_v39_sample_rate(server: ServerProcess, rate_hz: int) -> None:
    fields = forced(FRAMES, response_format="wav", seed=1, sample_rate=rate_hz)
    streamed = server.speech(**fields)
    assert streamed.headers["x-sample-rate"] == str(rate_hz)
    whole = server.speech(**fields, stream=False)
    with wave.open(io.BytesIO(whole.content)) as file:
        assert file.getframerate() == rate_hz
        assert file.getnframes() == round(SECONDS * rate_hz)
        samples = file.readframes(file.getnframes())
    assert streamed.content[44:] == samples, "no seam where chunks meet"
    raw = server.speech(**{**fields, "response_format": "pcm"})
    assert raw.headers["content-type"] == f"audio/pcm; rate={rate_hz}; channels=1"
    assert raw.content == samples


def test_v39_nothing_above_4_khz_folds_back(server: ServerProcess) -> None:
    """What is below 3 kHz at 24 kHz is the same at 8 kHz, though there was as much above 4."""
    native, low = pcm(server), pcm(server, sample_rate=8000)
    native_power = np.abs(np.fft.rfft(native / 24_000)) ** 2
    low_power = np.abs(np.fft.rfft(low / 8000)) ** 2
    up_to = int(3000 * SECONDS)
    assert native_power[int(4500 * SECONDS) :].sum() > 0.1 * native_power.sum()
    assert low_power[:up_to].sum() == pytest.approx(native_power[:up_to].sum(), rel=0.02)


@pytest.mark.parametrize("name", ["opus", "pcm"])
def test_rate_that_the_format_has_not(server: ServerProcess, name: str) -> None:
    response = server.speech(input="Hi.", response_format=name, sample_rate=12_345)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "sample_rate")
    opus = server.speech(input="Hi.", response_format="opus", sample_rate=16_000)
    assert (opus.status_code, opus.json()["error"]["param"]) == (400, "sample_rate")
    assert server.speech(input="Hi.", response_format="opus", sample_rate=48_000).is_success


@pytest.mark.parametrize("speed", [0.25, 0.5, 2.0, 4.0])
def test_v40_speed(server: ServerProcess, speed: float) -> None:
    streamed = server.speech(**forced(FRAMES, response_format="pcm", seed=1, speed=speed))
    whole = server.speech(
        **forced(FRAMES, response_format="pcm", seed=1, speed=speed, stream=False)
    )
    assert len(streamed.content) // 2 == round(SECONDS * 24_000 / speed)
    assert streamed.content == whole.content
    assert int(whole.headers["x-audio-duration-ms"]) == round(1000 * SECONDS / speed)
    outcome = server.client.get(f"/v1/audio/speech/{streamed.headers['x-request-id']}").json()
    assert outcome["audio_ms"] == round(1000 * SECONDS / speed)


def test_v40_speed_adds_little_to_the_first_sound(server: ServerProcess) -> None:
    def first_s(**fields: object) -> float:
        body = forced(FRAMES, response_format="pcm", **fields)
        begin = time.monotonic()
        with server.client.stream("POST", "/v1/audio/speech", json=body) as response:
            first = next(response.iter_raw())
            took_s = time.monotonic() - begin
            assert len(first) >= 0.02 * 48_000
        return took_s

    # The least of many: what the machine does beside takes nothing away.
    plain_s = min(first_s() for _ in range(8))
    for speed in (0.5, 2.0):
        assert min(first_s(speed=speed) for _ in range(8)) <= plain_s + 0.04


@pytest.mark.parametrize("name", ["mp3", "opus"])
def test_all_three_together(server: ServerProcess, name: str) -> None:
    response = server.speech(
        **forced(FRAMES, response_format=name, sample_rate=48_000, speed=2.0, stream=False)
    )
    samples, rate_hz = decode(response.content)
    assert rate_hz == 48_000
    assert len(samples) / rate_hz == pytest.approx(SECONDS / 2, abs=0.001)
