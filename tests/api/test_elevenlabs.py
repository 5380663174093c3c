"""Routes in the shape of ElevenLabs' API, as its clients use them."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.api.server_process import ServerProcess

WAIT_S = 60.0


class Talk:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def until_final(self, contexts: int = 1) -> list[dict[str, Any]]:
        """Messages up to the last `isFinal` of so many contexts."""
        heard: list[dict[str, Any]] = []
        async with asyncio.timeout(WAIT_S):
            while sum(bool(message.get("isFinal")) for message in heard) < contexts:
                heard.append(json.loads(await self.connection.recv()))
        return heard

    async def closed(self) -> int:
        async with asyncio.timeout(WAIT_S):
            try:
                while True:
                    await self.connection.recv()
            except ConnectionClosed as closed:
                assert closed.rcvd is not None
                return closed.rcvd.code


@asynccontextmanager
async def talk(server: ServerProcess, path: str) -> AsyncIterator[Talk]:
    url = f"ws://127.0.0.1:{server.port}/v1/text-to-speech/{path}"
    async with connect(url, max_size=2**26) as connection:
        yield Talk(connection)


def pcm(messages: list[dict[str, Any]], context: str | None = None) -> bytes:
    chosen = [m for m in messages if m.get("audio") and m.get("contextId") == context]
    return b"".join(base64.b64decode(message["audio"]) for message in chosen)


def test_multi_context_like_livekit(server: ServerProcess) -> None:
    """Init with a space, text with a flush, an empty flush, the close; then `isFinal`."""

    async def run() -> None:
        async with talk(server, "ryan/multi-stream-input?output_format=pcm_24000&seed=1") as eleven:
            await eleven.send(text=" ", voice_settings={}, context_id="a")
            await eleven.send(text="Hello there. ", context_id="a", flush=True)
            await eleven.send(text="", context_id="a", flush=True)
            await eleven.send(context_id="a", close_context=True)
            heard = await eleven.until_final()
            audio = pcm(heard, "a")
            assert len(audio) > 2000 and len(audio) % 2 == 0
            assert heard[-1] == {
                "audio": None,
                "isFinal": True,
                "contextId": "a",
                "context_id": "a",
            }
            await eleven.send(close_socket=True)
            assert await eleven.closed() == 1000

    asyncio.run(run())


def test_contexts_beside_each_other(server: ServerProcess) -> None:
    async def run() -> None:
        async with talk(server, "ryan/multi-stream-input?output_format=pcm_16000") as eleven:
            for name in ("a", "b", "c"):
                await eleven.send(text="Hello there. And", context_id=name)
            for name in ("c", "a", "b"):
                await eleven.send(text=" more. ", context_id=name)
                await eleven.send(context_id=name, close_context=True)
            heard = await eleven.until_final(3)
            for name in ("a", "b", "c"):
                assert len(pcm(heard, name)) > 2000
                mine = [message for message in heard if message["contextId"] == name]
                assert [message["isFinal"] for message in mine].index(True) == len(mine) - 1

    asyncio.run(run())


def test_alignment_counts_from_the_beginning_of_its_message(server: ServerProcess) -> None:
    async def run() -> None:
        text = "Hello there, this is a longer sentence. "
        async with talk(server, "ryan/multi-stream-input?output_format=pcm_24000") as eleven:
            await eleven.send(text=text, context_id="a")
            await eleven.send(context_id="a", close_context=True)
            heard = await eleven.until_final()
            said = ""
            for message in heard:
                alignment = message.get("alignment")
                if alignment is None:
                    continue
                said += "".join(alignment["chars"])
                starts, lengths = alignment["charStartTimesMs"], alignment["charDurationsMs"]
                assert len(starts) == len(lengths) == len(alignment["chars"])
                assert starts[0] == 0 and starts == sorted(starts)
                audio_ms = len(base64.b64decode(message["audio"])) / 48
                assert abs(starts[-1] + lengths[-1] - audio_ms) <= 1
            assert said == text

    asyncio.run(run())


def test_keep_alives_and_contexts_without_text(server: ServerProcess) -> None:
    async def run() -> None:
        async with talk(server, "ryan/multi-stream-input?output_format=pcm_24000") as eleven:
            await eleven.send(text="")
            await eleven.send(text=" ", context_id="a")
            await eleven.send(text="", context_id="a")
            await eleven.send(context_id="a", close_context=True)
            (final,) = await eleven.until_final()
            assert final["isFinal"] is True and final["contextId"] == "a"

    asyncio.run(run())


def test_closing_twice_interrupts(server: ServerProcess) -> None:
    async def run() -> None:
        long = "This goes on and on and on, for a long while. " * 30
        async with talk(server, "ryan/multi-stream-input?output_format=pcm_24000") as eleven:
            await eleven.send(text=long, context_id="a")
            await eleven.send(context_id="a", close_context=True)
            first = json.loads(await eleven.connection.recv())
            await eleven.send(context_id="a", close_context=True)
            heard = [first, *await eleven.until_final()]
            assert len(pcm(heard, "a")) / 48_000 < 20
            await eleven.send(text="Now this. ", context_id="b")
            await eleven.send(context_id="b", close_context=True)
            assert len(pcm(await eleven.until_final(), "b")) > 2000

    asyncio.run(run())
    server.wait_idle()


def test_single_context_ends_with_empty_text(server: ServerProcess) -> None:
    async def run() -> None:
        async with talk(server, "ryan/stream-input?output_format=pcm_24000") as eleven:
            await eleven.send(text=" ", voice_settings={"stability": 0.5, "speed": 1.1})
            await eleven.send(text="Hello ", try_trigger_generation=True)
            await eleven.send(text="there. ")
            await eleven.send(text="")
            heard = await eleven.until_final()
            assert len(pcm(heard)) > 2000 and "contextId" not in heard[-1]
            assert await eleven.closed() == 1000

    asyncio.run(run())


def test_phrases_of_auto_mode_are_set_apart(server: ServerProcess) -> None:
    """Clients that send whole sentences leave the space between them out."""

    async def run() -> str:
        path = "ryan/multi-stream-input?output_format=pcm_24000&auto_mode=true"
        async with talk(server, path) as eleven:
            await eleven.send(text="Hello.", context_id="a")
            await eleven.send(text="Hi.", context_id="a")
            await eleven.send(context_id="a", close_context=True)
            heard = await eleven.until_final()
            alignments = [m["alignment"] for m in heard if m.get("alignment")]
            return "".join("".join(alignment["chars"]) for alignment in alignments)

    assert asyncio.run(run()) == "Hello. Hi."


def test_mistakes_are_told_and_survived(server: ServerProcess) -> None:
    async def run() -> None:
        async with talk(server, "ryan/multi-stream-input?output_format=pcm_24000") as eleven:
            for wrong in ("[", '{"text": 5}', '{"text": "a", "context_id": ""}'):
                await eleven.connection.send(wrong)
                error = json.loads(await eleven.connection.recv())
                assert isinstance(error["error"], str) and error["code"]
            await eleven.send(text="Hello. ", context_id="a")
            await eleven.send(context_id="a", close_context=True)
            await eleven.until_final()
            await eleven.connection.send(b"\0\0")
            assert await eleven.closed() == 1003

    asyncio.run(run())


def test_idle_sessions_are_closed(server: ServerProcess) -> None:
    async def run() -> None:
        path = "ryan/multi-stream-input?output_format=pcm_24000&inactivity_timeout=1"
        async with talk(server, path) as eleven:
            assert await eleven.closed() == 1008

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("nobody/multi-stream-input", "voice_not_found"),
        ("ryan/stream-input?output_format=ulaw_8000", "invalid_parameter"),
        ("ryan/stream-input?model_id=other", "model_not_found"),
    ],
)
def test_what_cannot_be_is_refused_at_the_handshake(
    server: ServerProcess, path: str, code: str
) -> None:
    async def run() -> None:
        async with talk(server, path):
            pass

    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(run())
    body = refused.value.response.body
    assert refused.value.response.status_code in (400, 404)
    assert body is not None and json.loads(body)["error"]["code"] == code


def test_http(server: ServerProcess) -> None:
    body = {"text": "Hello there.", "model_id": "eleven_flash_v2_5", "voice_settings": {"speed": 1}}
    whole = server.client.post(
        "/v1/text-to-speech/Ryan", json=body, params={"output_format": "pcm_16000"}
    )
    assert whole.status_code == 200 and len(whole.content) > 2000
    assert whole.headers["x-sample-rate"] == "16000" and "content-length" in whole.headers
    streamed = server.client.post("/v1/text-to-speech/ryan/stream", json=body)
    assert streamed.headers["content-type"] == "audio/mpeg" and len(streamed.content) > 1000
    assert streamed.headers["x-sample-rate"] == "44100"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": ""}, "text"),
        ({"text": "a", "seed": -1}, "seed"),
        ({"text": "a", "model_id": "other"}, "model_id"),
        ({"text": "a", "language_code": "a" * 65}, "language_code"),
        ({"text": "a", "voice_settings": {"speed": 9}}, "voice_settings.speed"),
        (
            {"text": "a", "apply_text_normalization": "on", "language_code": "de"},
            "apply_text_normalization",
        ),
    ],
)
def test_http_refuses(server: ServerProcess, body: dict[str, Any], param: str) -> None:
    refused = server.client.post("/v1/text-to-speech/ryan", json=body)
    assert refused.status_code in (400, 404) and refused.json()["error"]["param"] == param


def test_voices(server: ServerProcess) -> None:
    listed = server.client.get("/v1/voices").json()
    ids = [voice["voice_id"] for voice in listed["voices"]]
    names = server.client.get("/v1/audio/voices").json()["voices"]
    assert ids == names and listed["total_count"] == len(ids)
    assert all(voice["category"] in ("premade", "cloned") for voice in listed["voices"])
