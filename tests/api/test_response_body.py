import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message

from voxserve.api.response_body import ResponseBody, SlowReaderError

LIMIT_S = 0.1


class Connection(asyncio.Protocol):
    """One whose `send` waits, as uvicorn's does, until the peer has taken what is there."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self.sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.writable.set()

    async def send(self, message: Message) -> None:
        assert self.transport is not None
        if message["type"] == "http.response.body":
            self.transport.write(message["body"])
            self.sent += len(message["body"])
        await self.writable.wait()


def with_body(
    test: Callable[[ResponseBody, Connection, socket.socket], Awaitable[None]],
) -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.setblocking(False)
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(Connection, sock=ours)
            scope = {"state": {"transport": connection.transport}}
            body = ResponseBody(scope, connection.send, LIMIT_S)
            await test(body, connection, theirs)
            body.close()
            assert connection.transport is not None
            connection.transport.abort()
            await asyncio.sleep(0)

    asyncio.run(run())


def test_only_a_write_that_waits_too_long_cuts_the_connection() -> None:
    async def test(body: ResponseBody, connection: Connection, peer: socket.socket) -> None:
        await body.begin({"x": "y"})
        await asyncio.sleep(3 * LIMIT_S)  # nothing to write for a while is nobody's fault
        await body.write(b"a")
        loop = asyncio.get_running_loop()
        begin = loop.time()
        with pytest.raises(SlowReaderError):
            await body.write(bytes(2**24))
        assert LIMIT_S <= loop.time() - begin < 5 * LIMIT_S
        assert connection.transport is not None and connection.transport.is_closing()

    with_body(test)


def test_a_slow_reader_that_reads_is_waited_for() -> None:
    async def test(body: ResponseBody, connection: Connection, peer: socket.socket) -> None:
        async def read() -> None:
            loop = asyncio.get_running_loop()
            while connection.sent < 2**22 or not connection.writable.is_set():
                await asyncio.sleep(LIMIT_S / 20)
                await loop.sock_recv(peer, 2**18)

        reader = asyncio.create_task(read())
        await body.begin({})
        await body.write(bytes(2**22))
        reader.cancel()

    with_body(test)
