"""One engine process: its start, the socket to it, and its end."""

import asyncio
import contextlib
import logging
import socket
import sys
import time
from collections.abc import Callable

import msgspec

from voxserve import wire
from voxserve.config import Config

_log = logging.getLogger("voxserve.engine")

CLOSE_GRACE_S = 2.0
"""Seconds that an engine gets to leave by itself after its socket closed."""


class EngineProcess(asyncio.Protocol):
    """A running `python -m voxserve.engine` and the connection to it.

    on_message is called for every message, in order, on the event loop. `gone` is set when the
    connection is lost, whichever side ended it. `heard_at` is the time of the last message;
    `ready` is the client's note that warm-up is over.
    """

    def __init__(self, on_message: Callable[[wire.FromEngine], None]) -> None:
        self.gone = asyncio.Event()
        self.heard_at = time.monotonic()
        self.ready = False
        self.process: asyncio.subprocess.Process | None = None
        self._on_message = on_message
        self._frames = wire.Frames()
        self._transport: asyncio.Transport | None = None

    async def spawn(self, config: Config) -> None:
        """Start the process. It lives in a session of its own, so that a terminal's Ctrl-C reaches
        the API process alone, which drains. API keys are not passed on: a command line is public.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            settings = config.model_dump_json(exclude={"api": {"api_keys"}})
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "voxserve.engine"),
                *("--fd", str(theirs.fileno()), "--config", settings),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)

    def send(self, message: wire.ToEngine) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(wire.encode(message))

    def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> int:
        """Close the socket, wait for the process, kill it after `grace_s`. Returns its exit code.

        On return the process is gone, and its device memory with it.
        """
        if self._transport is not None:
            self._transport.abort()
        if self.process is None:
            return 0
        try:
            async with asyncio.timeout(grace_s):
                return await self.process.wait()
        except TimeoutError:
            self.kill()
            return await self.process.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        try:
            for body in self._frames.feed(data):
                self._on_message(wire.decode_from_engine(body))
        except (ValueError, msgspec.MsgspecError) as error:
            _log.error("the engine sent a malformed message: %s", error)
            self.kill()

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set()
