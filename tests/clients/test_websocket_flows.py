"""The WebSocket flows of vLLM-Omni's and SGLang-Omni's clients, message by message."""

import asyncio
import json
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.api.server_process import ServerProcess

TEXT = "Dr. Smith paid $3.50. Is that much? It is not."


async def _speak(socket: ClientConnection, config: dict[str, Any]) -> list[dict[str, Any]]:
    """One session of theirs: word by word, then `input.done`; what came, each start with `bytes`,
    the length of the binary frames behind it."""
    await socket.send(json.dumps({"type": "session.config", **config}))
    for word in TEXT.split(" "):
        await socket.send(json.dumps({"type": "input.text", "text": f"{word} "}))
    await socket.send(json.dumps({"type": "input.done"}))
    heard: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        while not heard or heard[-1]["type"] not in ("session.done", "error"):
            message = await socket.recv()
            if isinstance(message, bytes):
                heard[-1]["bytes"] = heard[-1].get("bytes", 0) + len(message)
            else:
                heard.append(json.loads(message))
    return heard


def test_vllm_omni_by_sentence(server: ServerProcess) -> None:
    config = {
        "model": "tiny",
        "voice": "vivian",
        "task_type": "CustomVoice",
        "language": "English",
        "response_format": "wav",
        "speed": 1.0,
        "max_new_tokens": 2000,
        "split_granularity": "sentence",
    }

    async def run() -> None:
        async with connect(server.ws_url, max_size=None) as socket:
            heard = await _speak(socket, {**config, "stream_audio": False})
            starts = [event for event in heard if event["type"] == "audio.start"]
            assert [start["sentence_text"] for start in starts] == [
                "Dr. Smith paid $3.50.",
                "Is that much?",
                "It is not.",
            ]
            assert [start["sentence_index"] for start in starts] == [0, 1, 2]
            assert all(start["format"] == "wav" and start["bytes"] > 44 for start in starts)
            kinds = [event["type"] for event in heard if event["type"] != "session.configured"]
            assert kinds == [*["audio.start", "audio.done"] * 3, "session.done"]
            assert heard[-1]["total_sentences"] == 3

    asyncio.run(run())


def test_vllm_omni_streaming_audio(server: ServerProcess) -> None:
    """Its default granularity; here that is one request which the words flow into."""

    async def run() -> None:
        async with connect(server.ws_url, max_size=None) as socket:
            config = {"voice": "vivian", "response_format": "pcm", "stream_audio": True}
            heard = await _speak(socket, config)
            start, done = heard[-3], heard[-2]
            assert TEXT.startswith(start["sentence_text"]) and start["sample_rate"] == 24_000
            assert done["total_bytes"] == start["bytes"] and done["error"] is False

    asyncio.run(run())


def test_sglang_omni(server: ServerProcess) -> None:
    """Audio as JSON; `input.done` ends the session, and the server closes it."""

    async def run() -> None:
        async with connect(server.ws_url, max_size=None) as socket:
            config = {"response_format": "pcm", "audio_transport": "json", "compat": "sglang"}
            heard = await _speak(socket, config)
            chunks = [event for event in heard if event["type"] == "audio.chunk"]
            assert [chunk["chunk_id"] for chunk in chunks] == list(range(len(chunks)))
            assert all(chunk["audio_b64"] for chunk in chunks) and chunks
            try:
                await socket.recv()
            except ConnectionClosed as closed:
                assert closed.rcvd is not None and closed.rcvd.code == 1000

    asyncio.run(run())
