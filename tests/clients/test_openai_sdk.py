"""OpenAI's SDK in each of its ways, with nothing set that its users do not set."""

import asyncio
import base64
import json

import httpx
import openai
import pytest

from tests.api.server_process import ServerProcess

TEXT = "Hello there. It is a fine day, is it not?"


@pytest.fixture
def client(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_create_gives_an_mp3(client: openai.OpenAI) -> None:
    speech = client.audio.speech.create(model="gpt-4o-mini-tts", voice="ash", input=TEXT)
    assert speech.content[0] == 0xFF and speech.content[1] & 0xE0 == 0xE0
    assert speech.response.headers["content-type"] == "audio/mpeg"
    assert len(speech.content) > 4000


def test_streaming_response(client: openai.OpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=TEXT, response_format="pcm"
    ) as response:
        pieces = list(response.iter_bytes())
    assert len(pieces) > 1 and sum(map(len, pieces)) / 48_000 > 0.5


def test_streaming_response_async(server: ServerProcess) -> None:
    async def speak() -> bytes:
        async with (
            openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
            client.audio.speech.with_streaming_response.create(
                model="tts-1-hd", voice="nova", input=TEXT, response_format="wav"
            ) as response,
        ):
            return await response.read()

    assert asyncio.run(speak())[:4] == b"RIFF"


def test_server_sent_events(client: openai.OpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="ash", input=TEXT, stream_format="sse"
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line.startswith("data: ")]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    audio = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    assert audio[0] == 0xFF and len(audio) > 4000
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["usage"]["total_tokens"] > 0


def test_errors_are_the_sdks_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.audio.speech.create(model="tts-1", voice="alloy", input=" ")
    assert refused.value.code == "input_empty" and refused.value.param == "input"
    with pytest.raises(openai.NotFoundError):
        client.audio.speech.create(model="nope", voice="alloy", input=TEXT)


def test_models_and_warming_up(client: openai.OpenAI) -> None:
    assert client.models.list().data[0].object == "model"
    with pytest.raises(openai.NotFoundError):  # What LiveKit does to open its connection.
        client.get("/", cast_to=httpx.Response)
