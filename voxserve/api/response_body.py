"""The sending end of one HTTP response, aware of clients that do not read."""

import asyncio
from collections.abc import Mapping

from starlette.types import Scope, Send

PIECE_BYTES = 64 * 2**10


class SlowReaderError(Exception):
    """The client took nothing for the configured time; its connection has been cut."""


class ResponseBody:
    """begun: the status line is out, so an error can no longer become a status. Must be closed."""

    def __init__(self, scope: Scope, send: Send, slow_reader_s: float) -> None:
        self.begun = False
        self._send = send
        self._slow_reader_s = slow_reader_s
        self._slow = False
        self._waits_since: float | None = None
        self._loop = asyncio.get_running_loop()
        # One timer for all writes: hardly any of them waits, and each would pay for its own.
        self._timer = self._loop.call_later(slow_reader_s, self._look)
        self._transport: asyncio.Transport | None = scope["state"].get("transport")
        if self._transport is not None:
            # Every write then waits until the one before has left this process: a slow client
            # costs no memory here, and what was written was really taken by its socket.
            self._transport.set_write_buffer_limits(high=0)

    async def begin(self, headers: Mapping[str, str]) -> None:
        self.begun = True
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._pass({"type": "http.response.start", "status": 200, "headers": raw})

    async def write(self, data: bytes) -> None:
        """Raises SlowReaderError. Returns silently when the client has gone."""
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            await self._pass({"type": "http.response.body", "body": piece, "more_body": True})

    async def finish(self) -> None:
        await self._pass({"type": "http.response.body", "body": b"", "more_body": False})

    def cut(self) -> None:
        """End the connection so that the response cannot be taken for a whole one."""
        if self._transport is None:
            raise RuntimeError("the response failed half way and its connection cannot be cut")
        self._transport.abort()

    def close(self) -> None:
        """Nothing more will be written."""
        self._timer.cancel()

    async def _pass(self, message: dict[str, object]) -> None:
        self._waits_since = self._loop.time()
        try:
            await self._send(message)
        finally:
            self._waits_since = None
        if self._slow:
            raise SlowReaderError

    def _look(self) -> None:
        """Cut the connection if a write has waited for too long; it returns then."""
        since = self._loop.time() if self._waits_since is None else self._waits_since
        until = since + self._slow_reader_s
        if until <= self._loop.time():
            self._slow = True
            self.cut()
        else:
            self._timer = self._loop.call_at(until, self._look)
