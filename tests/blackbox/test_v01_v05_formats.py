"""V01, V03, V04, V05: what a stream is made of, and that both ways of asking give the same."""

import io
import struct
import time
import wave

import openai
import pytest

from tests.api.server_process import ServerProcess, forced

TEXT = "The quick brown fox jumps over the lazy dog, and then it rests a while. " * 7


def test_v01_sdk_streams_by_default(server: ServerProcess) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        begin = time.monotonic()
        reads = []
        with client.audio.speech.with_streaming_response.create(
            model="tts-1", voice="alloy", input=TEXT, response_format="pcm"
        ) as response:
            for piece in response.iter_bytes():
                reads.append((time.monotonic() - begin, len(piece)))
    whole_s = time.monotonic() - begin
    assert reads[0][0] < 0.1 * whole_s
    assert len(reads) >= 10
    total = sum(size for _, size in reads)
    assert total % 2 == 0 and total / 48_000 > 30
    assert all(size % 2 == 0 for _, size in reads)


def test_v03_streamed_wav_has_one_open_header(server: ServerProcess) -> None:
    whole = server.speech(input="Hello there.", response_format="wav", seed=5)
    pcm = server.speech(input="Hello there.", response_format="pcm", seed=5)
    header, rest = whole.content[:44], whole.content[44:]
    assert header[:4] == b"RIFF" and header[8:16] == b"WAVEfmt "
    assert struct.unpack("<I", header[4:8]) == struct.unpack("<I", header[40:44]) == (2**32 - 1,)
    assert struct.unpack("<HHI", header[20:28]) == (1, 1, 24_000)
    assert struct.unpack("<H", header[34:36]) == (16,)
    assert b"RIFF" not in rest
    assert rest == pcm.content
    assert whole.headers["content-type"] == "audio/wav"
    assert "content-length" not in whole.headers


def test_v04_whole_wav_has_exact_sizes(server: ServerProcess) -> None:
    response = server.speech(input="Hello there.", response_format="wav", stream=False)
    data = response.content
    (riff_size,) = struct.unpack("<I", data[4:8])
    assert int(response.headers["content-length"]) == len(data) == riff_size + 8
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        assert file.getnframes() == (len(data) - 44) // 2
        audio_ms = file.getnframes() * 1000 / 24_000
    assert int(response.headers["x-audio-duration-ms"]) == round(audio_ms)
    assert response.headers["x-finish-reason"] == "stop"
    assert int(response.headers["x-usage-input-tokens"]) > 0
    assert int(response.headers["x-usage-output-tokens"]) > 0


@pytest.mark.parametrize("text", ["Hello.", "One, two, three, four, five."])
def test_v05_streamed_equals_whole(server: ServerProcess, text: str) -> None:
    fields = {"input": text, "response_format": "pcm", "seed": 1}
    streamed = server.speech(**fields)
    whole = server.speech(**fields, stream=False)
    assert streamed.content == whole.content
    assert len(streamed.content) % 2 == 0
    assert streamed.headers["x-seed"] == whole.headers["x-seed"] == "1"


def test_seed_that_was_drawn_gives_the_same_audio_again(server: ServerProcess) -> None:
    first = server.speech(input="Hello.", response_format="pcm")
    again = server.speech(input="Hello.", response_format="pcm", seed=int(first.headers["x-seed"]))
    other = server.speech(input="Hello.", response_format="pcm")
    assert first.content == again.content
    assert first.content != other.content


def test_first_chunk_is_no_header_alone(server: ServerProcess) -> None:
    fields = forced(20, response_format="wav")
    with server.client.stream("POST", "/v1/audio/speech", json=fields) as response:
        pieces = response.iter_raw()
        first = next(pieces)
        assert len(first) >= 44 + 0.02 * 48_000
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["cache-control"] == "no-store"
        assert "ttfa;dur=" in response.headers["server-timing"]
        assert len(first) + sum(map(len, pieces)) == 44 + 20 * 3840
