"""A WebSocket client for tests of `/v1/audio/speech/stream`."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

WAIT_S = 60.0


@dataclass(slots=True)
class Heard:
    """What came until some event: events with their arrival times, and the binary frames."""

    events: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def audio(self) -> bytes:
        return b"".join(self.frames)


class Client:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, kind: str, **fields: Any) -> None:
        # Escaped, because half a surrogate pair cannot be encoded otherwise.
        await self.connection.send(json.dumps({"type": kind, **fields}))

    async def until(self, *types: str, timeout_s: float = WAIT_S) -> Heard:
        """Everything up to the first event of one of these types."""
        heard = Heard()
        async with asyncio.timeout(timeout_s):
            while not heard.events or heard.last["type"] not in types:
                message = await self.connection.recv()
                if isinstance(message, bytes):
                    heard.frames.append(message)
                else:
                    heard.events.append(json.loads(message))
                    heard.times.append(time.monotonic())
        return heard

    async def frame(self) -> bytes:
        """The next binary frame."""
        async with asyncio.timeout(WAIT_S):
            while not isinstance(message := await self.connection.recv(), bytes):
                pass
        return message

    async def configure(self, **fields: Any) -> dict[str, Any]:
        await self.send("session.config", **fields)
        return (await self.until("session.configured")).last

    async def speak(self, text: str, **fields: Any) -> Heard:
        """One whole utterance."""
        await self.send("input.text", text=text, **fields)
        await self.send("input.flush", **fields)
        return await self.until("session.done", "error")

    async def closed(self, timeout_s: float = WAIT_S) -> tuple[int, Heard]:
        """Read to the end: the close code, and what came before it."""
        heard = Heard()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    message = await self.connection.recv()
                    if isinstance(message, bytes):
                        heard.frames.append(message)
                    else:
                        heard.events.append(json.loads(message))
                        heard.times.append(time.monotonic())
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd is not None else 1006
        return code, heard


@asynccontextmanager
async def session(url: str, **options: Any) -> AsyncIterator[Client]:
    async with connect(url, max_size=2**26, compression=None, **options) as connection:
        yield Client(connection)
