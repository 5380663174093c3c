"""V02, V06 to V09: the compressed formats, as stock clients ask for them."""

import base64
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import psutil
import pytest

from tests.api.server_process import ServerProcess, forced
from tests.api.test_speech import events
from tests.audio.sounds import decode

NOISE_S = 0.04
"""What a busy test machine may add to a best of five."""


def test_v02_nothing_but_a_text(server: ServerProcess) -> None:
    response = server.client.post("/v1/audio/speech", content='{"input":"Hello"}')
    assert response.status_code == 200
    assert response.headers["content-type"] == "audio/mpeg"
    assert "content-length" not in response.headers and "x-bit-depth" not in response.headers
    samples, rate_hz = decode(response.content)
    assert rate_hz == int(response.headers["x-sample-rate"]) == 24_000
    assert 0.3 <= len(samples) / rate_hz <= 2


def test_v06_as_livekit_asks(server: ServerProcess) -> None:
    response = server.speech(
        input="Hello there.",
        model="gpt-4o-mini-tts",
        voice="ash",
        response_format="mp3",
        stream_format="sse",
        seed=3,
    )
    assert response.headers["content-type"].startswith("text/event-stream")
    *deltas, (last, done) = events(response)
    assert {name for name, _ in deltas} == {"speech.audio.delta"} and last == "speech.audio.done"
    data = b"".join(base64.b64decode(delta["audio"]) for _, delta in deltas)
    samples, rate_hz = decode(data)
    assert data == server.speech(input="Hello there.", voice="ash", seed=3).content
    assert 0 <= len(samples) / rate_hz - done["audio_ms"] / 1000 <= 0.1
    assert done["usage"]["input_tokens"] > 0 and done["usage"]["output_tokens"] > 0
    starts = [delta["audio_start_ms"] for _, delta in deltas]
    assert starts[0] == 0 and all(a < b for a, b in pairwise(starts))


def arrivals(
    server: ServerProcess, name: str, seconds: Callable[[bytes], float]
) -> Iterator[tuple[float, float]]:
    """(time since the request, audio that can be played by then) after each read."""
    fields = forced(25, response_format=name, seed=1)
    begin = time.monotonic()
    data = b""
    reads = []
    with server.client.stream("POST", "/v1/audio/speech", json=fields) as response:
        for piece in response.iter_raw():
            data += piece
            reads.append((time.monotonic() - begin, len(data)))
    for at, size in reads:
        yield at, seconds(data[:size])


def decoded_s(data: bytes) -> float:
    samples, rate_hz = decode(data)
    return len(samples) / rate_hz if rate_hz else 0.0


# The delays that are accepted, against what pcm brings at the same time. aac and mp3 begin with
# silence of their encoders' own, which is counted here as late sound.
@pytest.mark.parametrize(
    ("name", "silence_s", "most_s"),
    [("opus", 0.0, 0.06), ("flac", 0.0, 0.1), ("mp3", 0.046, 0.1), ("aac", 0.0213, 0.1)],
)
def test_v07_sound_comes_soon(
    server: ServerProcess, name: str, silence_s: float, most_s: float
) -> None:
    first_s, lag_s = [], []
    for _ in range(5):
        plain = list(arrivals(server, "pcm", lambda data: len(data) / 48_000))
        coded = [(at, s - silence_s) for at, s in arrivals(server, name, decoded_s)]
        first_s.append(next(at for at, s in coded if s > 0) - plain[0][0])
        # When the same sound was there: never longer after pcm than this.
        late = [
            at - next(t for t, have in plain if have >= min(s, 2.0)) for at, s in coded if s > 0
        ]
        lag_s.append(max(late))
    assert min(first_s) <= most_s + NOISE_S
    assert min(lag_s) <= 0.12 + NOISE_S


@pytest.mark.parametrize("stream", [None, False])
def test_v08_flac_is_pcm(server: ServerProcess, stream: bool | None) -> None:
    fields = {"input": "Hello there.", "seed": 1, "stream": stream}
    pcm = server.speech(**fields, response_format="pcm").content
    flac = server.speech(**fields, response_format="flac")
    samples, rate_hz = decode(flac.content)
    assert rate_hz == 24_000 and samples.astype("<i2").tobytes() == pcm
    total = int.from_bytes(flac.content[21:26]) & (2**36 - 1)
    assert total == (len(pcm) // 2 if stream is False else 0)
    assert ("content-length" in flac.headers) == (stream is False)


def test_v09_aac_is_adts(server: ServerProcess) -> None:
    fields = {"input": "Hello there.", "seed": 1}
    pcm = server.speech(**fields, response_format="pcm").content
    aac = server.speech(**fields, response_format="aac")
    assert aac.headers["content-type"] == "audio/aac"
    assert aac.content[0] == 0xFF and aac.content[1] & 0xF6 == 0xF0
    assert aac.headers["x-sample-rate"] == "48000"
    samples, rate_hz = decode(aac.content)
    assert len(samples) / rate_hz == pytest.approx(len(pcm) / 48_000, abs=0.1)


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("mp3", "audio/mpeg"),
        ("opus", "audio/ogg; codecs=opus"),
        ("aac", "audio/aac"),
        ("flac", "audio/flac"),
    ],
)
def test_whole_bodies_have_their_length(
    server: ServerProcess, name: str, content_type: str
) -> None:
    response = server.speech(**forced(25, response_format=name, stream=False))
    assert response.headers["content-type"] == content_type
    assert int(response.headers["content-length"]) == len(response.content)
    assert response.headers["x-audio-duration-ms"] == "2000"
    samples, rate_hz = decode(response.content)
    assert rate_hz == int(response.headers["x-sample-rate"])
    exact = name != "aac"  # ADTS has no place to say what is padding
    assert len(samples) / rate_hz == pytest.approx(2.0, abs=0.001 if exact else 0.1)


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac"])
def test_silence_that_was_asked_for_is_a_valid_file(server: ServerProcess, name: str) -> None:
    fields = {"input": "…", "on_unspeakable": "silence", "response_format": name}
    for stream in (None, False):
        samples, rate_hz = decode(server.speech(**fields, stream=stream).content)
        assert 0 < len(samples) / rate_hz < 0.13 and not np.any(samples)


@pytest.mark.parametrize("style", [None, "sse"])
def test_clients_that_leave_leave_no_encoder(server: ServerProcess, style: str | None) -> None:
    """An encoder of flac holds 7 MB, so that a few would show."""
    process = psutil.Process(server.process.pid)
    fields = forced(400, response_format="flac", stream_format=style)

    def leave(times: int) -> int:
        for _ in range(times):
            with server.client.stream("POST", "/v1/audio/speech", json=fields) as response:
                assert next(response.iter_raw())
        server.wait_idle()
        return process.memory_info().rss

    before = leave(5)
    assert leave(20) - before < 20 * 2**20
