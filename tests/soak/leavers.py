"""Clients that leave, or change their mind, at random moments of a long speech."""

import asyncio
import json
import random
import socket
import struct
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

import httpx
from websockets.asyncio.client import ClientConnection, connect

from tests.api.server_process import ServerProcess, forced

LONG = forced(750, response_format="pcm")
AT_ONCE = 12
LEAVES_WITHIN_S = 0.2
WAITS_FOR_AUDIO = 0.2
"""Share of those that leave right after the first byte."""
CANCELS_AUDIO = 0.5
"""Share of the cancels that come after the first byte."""
_TAG = struct.Struct("<BBHIQ")


async def drops(server: ServerProcess, count: int, seed: int) -> None:
    """Half over HTTP, half over WebSocket, before, at and after the first byte."""
    moments = random.Random(seed)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with gate:
            await (_drop_http if number % 2 else _drop_ws)(server, moments)

    await asyncio.gather(*(one(number) for number in range(count)))


async def _drop_http(server: ServerProcess, moments: random.Random) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    request = httpx.Request("POST", f"{server.url}/v1/audio/speech", json=LONG)
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    writer.write(f"POST /v1/audio/speech HTTP/1.1\r\n{head}\r\n".encode() + request.content)
    await _leave(reader.read(1), moments)
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _drop_ws(server: ServerProcess, moments: random.Random) -> None:
    async with connect(server.ws_url, max_size=None, proxy=None) as client:
        await _configure(client, "binary")
        await client.send(json.dumps({"type": "input.text", "text": "Some words."}))
        await _leave(_audio(client), moments)
        client.transport.abort()


async def _leave(first_byte: Awaitable[object], moments: random.Random) -> None:
    """Wait for a random moment, in some cases for the first byte."""
    wait = asyncio.ensure_future(first_byte)
    waits = moments.random() < WAITS_FOR_AUDIO
    await asyncio.wait({wait}, timeout=60 if waits else moments.random() * LEAVES_WITHIN_S)
    wait.cancel()
    await asyncio.gather(wait, return_exceptions=True)


async def _audio(client: ClientConnection) -> None:
    async for message in client:
        if isinstance(message, bytes):
            return


async def _configure(client: ClientConnection, transport: str) -> None:
    config = {
        "type": "session.config",
        "audio_transport": transport,
        "extra_params": LONG["extra_params"],
    }
    await client.send(json.dumps(config))


@dataclass(slots=True)
class Cancels:
    """answer_s: input.cancel to audio.cancelled, as the client sees it. stale: messages of a
    cancelled utterance that came after it. heard: utterances that audio of came before."""

    answer_s: list[float] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    heard: int = 0

    def quantile_s(self, share: float) -> float:
        return sorted(self.answer_s)[int(share * (len(self.answer_s) - 1))]


async def cancels(server: ServerProcess, count: int, seed: int, at_once: int = 4) -> Cancels:
    """Speak, cancel at a random moment, at once speak again, over a few sessions."""
    done = Cancels()
    shares = [count // at_once + (number < count % at_once) for number in range(at_once)]
    await asyncio.gather(
        *(_talk(server, share, f"{seed}-{number}", done) for number, share in enumerate(shares))
    )
    return done


async def _talk(server: ServerProcess, count: int, seed: str, done: Cancels) -> None:
    """Tagged frames, which name their utterance."""
    moments, over, heard = random.Random(seed), set[int](), set[int]()
    begun: dict[int, float] = {}
    answered, sounding = asyncio.Event(), asyncio.Event()
    async with connect(server.ws_url, max_size=None, proxy=None) as client:

        async def receive() -> None:
            async for message in client:
                if isinstance(message, bytes):
                    utterance = _TAG.unpack_from(message)[3]
                    heard.add(utterance)
                    sounding.set()
                    if utterance in over:
                        done.stale.append(f"audio of {utterance}")
                    continue
                event = json.loads(message)
                utterance = event.get("utterance_index")
                if event["type"] == "error" or utterance in over:
                    done.stale.append(message[:200])
                if event["type"] == "audio.cancelled":
                    done.answer_s.append(time.monotonic() - begun[utterance])
                    over.add(utterance)
                    answered.set()

        await _configure(client, "tagged")
        receiving = asyncio.create_task(receive())
        for number in range(count):
            await client.send('{"type": "input.text", "text": "Some words."}')
            if moments.random() < 0.5:
                await client.send('{"type": "input.flush"}')
            if moments.random() < CANCELS_AUDIO:
                async with asyncio.timeout(60):
                    await sounding.wait()
            await asyncio.sleep(moments.random() * LEAVES_WITHIN_S)
            sounding.clear()
            answered.clear()
            begun[number] = time.monotonic()
            await client.send('{"type": "input.cancel"}')
            async with asyncio.timeout(60):
                await answered.wait()
        await client.send('{"type": "session.close"}')
        async with asyncio.timeout(60):
            await receiving
    done.heard += len(heard)
