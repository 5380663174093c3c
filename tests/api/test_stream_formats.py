"""Formats, sample rates and speed over `WS /v1/audio/speech/stream`."""

import asyncio
import base64
import struct
from typing import Any

import pytest

from tests.api.server_process import ServerProcess, forced
from tests.api.ws_client import Heard, session
from tests.audio.sounds import decode

SECONDS = 2.0
FIELDS: dict[str, Any] = forced(25, seed=3)
TEXT: str = FIELDS.pop("input")


def speak(server: ServerProcess, **fields: Any) -> Heard:
    async def talk() -> Heard:
        async with session(server.ws_url) as client:
            await client.configure(**FIELDS, **fields)
            return await client.speak(TEXT)

    heard = asyncio.run(talk())
    assert heard.last["type"] == "session.done", heard.last
    return heard


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
@pytest.mark.parametrize("stream_audio", [True, False])
def test_every_format(server: ServerProcess, name: str, stream_audio: bool) -> None:
    heard = speak(server, response_format=name, stream_audio=stream_audio)
    start, done = heard.events[0], heard.events[-2]
    assert start["format"] == name
    assert start["sample_rate"] == (48_000 if name in ("opus", "aac") else 24_000)
    assert (len(heard.frames) > 1) == stream_audio
    assert done["total_bytes"] == len(heard.audio) and done["audio_ms"] == 1000 * SECONDS
    if name == "pcm":
        assert len(heard.audio) == 48_000 * SECONDS
    else:
        samples, rate_hz = decode(heard.audio)
        assert rate_hz == start["sample_rate"]
        assert 0 <= len(samples) / rate_hz - SECONDS <= 0.1
    posted = server.speech(
        **FIELDS, input=TEXT, response_format=name, stream=None if stream_audio else False
    )
    assert name == "opus" or posted.content == heard.audio


def test_tagged_frames_at_another_rate_and_speed(server: ServerProcess) -> None:
    heard = speak(server, audio_transport="tagged", sample_rate=16_000, speed=0.5)
    expected = 0
    for index, frame in enumerate(heard.frames):
        version, flags, _, _, first = struct.unpack("<BBHIQ", frame[:16])
        assert (version, first) == (1, expected)
        assert flags == (1 if index == len(heard.frames) - 1 else 0)
        expected += (len(frame) - 16) // 2
    assert expected == SECONDS / 0.5 * 16_000
    assert heard.events[-2]["audio_ms"] == 1000 * SECONDS / 0.5


def test_json_frames_tell_when_their_audio_begins(server: ServerProcess) -> None:
    heard = speak(server, audio_transport="json", response_format="mp3", speed=2.0)
    chunks = [event for event in heard.events if event["type"] == "audio.chunk"]
    starts = [chunk["audio_start_ms"] for chunk in chunks]
    assert starts[0] == 0 and starts == sorted(set(starts)) and starts[-1] < 1000 * SECONDS / 2
    data = b"".join(base64.b64decode(chunk["audio_b64"]) for chunk in chunks)
    samples, rate_hz = decode(data)
    assert 0 <= len(samples) / rate_hz - SECONDS / 2 <= 0.1


def test_tagged_takes_pcm_alone(server: ServerProcess) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            await client.send("session.config", audio_transport="tagged", response_format="mp3")
            error = (await client.until("error")).last["error"]
            assert error["param"] == "response_format"

    asyncio.run(talk())


def test_cancelled_utterance_leaves_its_encoder(server: ServerProcess) -> None:
    """The next one, in the same context, is a stream of its own from its first byte."""

    async def talk() -> None:
        async with session(server.ws_url) as client:
            long = {"extra_params": {"ignore_eos": True, "max_frames": 400}}
            await client.configure(**long, response_format="flac")
            await client.send("input.text", text=TEXT)
            await client.send("input.flush")
            assert (await client.frame())[:4] == b"fLaC"
            await client.send("input.cancel")
            cancelled = (await client.until("audio.cancelled")).last
            assert cancelled["sent_ms"] <= cancelled["generated_ms"]
            await client.configure(**FIELDS, response_format="flac")
            heard = await client.speak(TEXT)
            assert heard.frames[0][:4] == b"fLaC"
            samples, rate_hz = decode(heard.audio)
            assert len(samples) == SECONDS * rate_hz

    asyncio.run(talk())
    server.wait_idle()
