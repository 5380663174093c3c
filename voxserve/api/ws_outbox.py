"""The sending half of a WebSocket session: one queue, one sender, never in the receiver's way."""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import WebSocket
from prometheus_client import Gauge
from starlette.websockets import WebSocketDisconnect

from voxserve.api import ws_limits as limits

HIGH_BYTES = 256 * 2**10
"""Audio waits for room above this."""

MAX_BYTES = 2 * 2**20
"""Only answers to a client that asks and never reads can pile up to this."""


_GONE = (WebSocketDisconnect, RuntimeError)
"""The client has gone, or the protocol closed the connection by itself."""

_log = logging.getLogger("voxserve.api")


@dataclass(slots=True)
class _Item:
    """data: empty for a mark. owner: whose it is, None for what must be said. sent: called once
    the socket took it."""

    data: str | bytes
    owner: object | None = None
    sent: Callable[[], None] | None = None


class Outbox:
    """slow: cut off because it took nothing for `slow_reader_s`, or too much waits for it."""

    def __init__(self, websocket: WebSocket, slow_reader_s: float, buffered: Gauge) -> None:
        self.slow = False
        self._websocket = websocket
        self._slow_reader_s = min(limits.SLOW_READER_S, slow_reader_s)
        self._buffered = buffered
        self._items: deque[_Item] = deque()
        self._bytes = 0
        self._close: tuple[int, str] | None = None
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        transport = websocket.scope["state"].get("transport")
        self._transport: asyncio.Transport | None = transport
        if transport is not None:
            transport.set_write_buffer_limits(high=0)

    def event(
        self,
        content: dict[str, Any],
        owner: object | None = None,
        sent: Callable[[], None] | None = None,
    ) -> None:
        """Queue a JSON text frame behind what is there; with an owner it can be purged too."""
        self._put(_Item(json.dumps(content, separators=(",", ":")), owner, sent))

    async def room(self) -> None:
        """Wait until audio may be put."""
        await self._room.wait()

    def audio(self, owner: object, data: str | bytes, sent: Callable[[], None]) -> None:
        """Queue a frame that `purge` may still take back."""
        self._put(_Item(data, owner, sent))

    def mark(self, owner: object | None, sent: Callable[[], None]) -> None:
        """Call `sent` once everything queued so far has been taken."""
        self._put(_Item(b"", owner, sent))

    def purge(self, owner: object) -> None:
        """Forget what belongs to `owner` and is not on its way yet."""
        kept = deque(item for item in self._items if item.owner is not owner)
        self._count(sum(map(_size, kept)) - self._bytes)
        self._items = kept

    def close(self, code: int, reason: str = "") -> None:
        """Close the connection once everything queued is sent. The first call counts."""
        if self._close is None:
            self._close = (code, reason)
            self._work.set()

    @property
    def closing(self) -> bool:
        return self._close is not None

    def start(self) -> asyncio.Task[None]:
        """Run beside the receiver. Should it crash, the connection ends."""
        task = asyncio.create_task(self.run())
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a WebSocket sender crashed", exc_info=error)
            self.abort()

    async def run(self) -> None:
        """Send until closed. Returns when the client has gone or was cut for not reading."""
        try:
            while True:
                while self._items:
                    item = self._items.popleft()
                    self._count(-_size(item))
                    if item.data and not await self._sent(item.data):
                        return
                    if item.sent is not None:
                        item.sent()
                if self._close is not None:
                    with suppress(*_GONE):
                        await self._websocket.close(*self._close)
                    return
                self._work.clear()
                await self._work.wait()
        finally:
            self._count(-self._bytes)
            self._items.clear()

    def abort(self) -> None:
        """Cut the connection without a word: the client would not read it."""
        if self._transport is not None:
            self._transport.abort()

    async def _sent(self, data: str | bytes) -> bool:
        """Whether the client's socket took it."""
        try:
            async with asyncio.timeout(self._slow_reader_s):
                if isinstance(data, str):
                    await self._websocket.send_text(data)
                else:
                    await self._websocket.send_bytes(data)
        except TimeoutError:
            self.slow = True
            self.abort()
            return False
        except _GONE:
            return False
        return True

    def _put(self, item: _Item) -> None:
        if self._close is None:
            self._items.append(item)
            self._count(_size(item))
            self._work.set()
            if self._bytes > MAX_BYTES and not self.slow:
                self.slow = True
                self.abort()

    def _count(self, change: int) -> None:
        self._bytes += change
        self._buffered.inc(change)
        if self._bytes > HIGH_BYTES:
            self._room.clear()
        else:
            self._room.set()


def _size(item: _Item) -> int:
    return len(item.data)
