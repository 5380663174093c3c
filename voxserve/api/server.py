"""The API process: a listening socket, uvicorn, and what the signals do.

SIGTERM or SIGINT drains: not ready at once, what runs may end within `drain_s`, exit code 0.
A second one quits at once. Run as `python -m voxserve.api.server [FILE.yaml]`.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from voxserve.api import logs
from voxserve.api.app import create_app
from voxserve.api.protocols import HttpProtocol, WebSocketProtocol
from voxserve.api.service import Service
from voxserve.config import Config, load_config
from voxserve.errors import CheckpointError, UnavailableError

EXIT_NO_MODEL = 2
EXIT_NO_PORT = 1
EXIT_BAD_SETUP = 1
"""A file of keys that cannot be read, or a package that a setting needs and that is missing."""
EXIT_ENGINE_FAILED = 70
"""The engine died too often: the process ends so that a supervisor sees it."""

WS_MAX_BYTES = 29 * 2**19
"""14.5 MiB: the largest session.config."""
SEND_BUFFER_BYTES = 256 * 2**10
BACKLOG = 2048
KEEP_ALIVE_S = 65
"""Longer than clients keep idle connections, so that none is closed while it is being used."""

LINGER_S = 2
"""For connections to close after everything they carried has ended."""

Beside = Callable[[Service, str], Awaitable[None]]

_log = logging.getLogger("voxserve.api")


def run(config: Config, beside: Beside | None = None) -> int:
    """Serve until a signal or the engine's final failure. Returns the exit code.

    beside: awaited while the server runs, with its service and the URL, for a display.
    """
    logs.configure(config.api.log_level)
    try:
        listener = _listen(config.api.host, config.api.port)
    except OSError as error:
        _log.error("cannot listen on %s:%d: %s", config.api.host, config.api.port, error)
        return EXIT_NO_PORT
    with listener:
        try:
            process = _Process(config, listener)
        except (OSError, ValueError) as error:
            _log.error("cannot start: %s", error)
            return EXIT_BAD_SETUP
        return asyncio.run(process.run(beside))


class _Process:
    def __init__(self, config: Config, listener: socket.socket) -> None:
        self._config = config
        self._listener = listener
        self._app: FastAPI = create_app(config)
        self._service: Service = self._app.state.service
        self._stop = asyncio.Event()
        self._server = _Server(_uvicorn_config(self._app, config))

    async def run(self, beside: Beside | None) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        host, port = self._listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        logs.log_fields(_log, "listening", {"host": host, "port": port})
        serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        engine = asyncio.create_task(self._follow_engine(serving))
        stopping = asyncio.create_task(self._stop.wait())
        extra = [asyncio.ensure_future(beside(self._service, url))] if beside else []
        await asyncio.wait({serving, engine, stopping}, return_when=asyncio.FIRST_COMPLETED)
        code = engine.result() if engine.done() else 0
        if stopping.done():
            await self._drain()
        self._server.should_exit = True
        await serving
        for task in (engine, stopping, *extra):
            task.cancel()
        await asyncio.gather(engine, stopping, *extra, return_exceptions=True)
        return code

    async def _follow_engine(self, serving: asyncio.Task[None]) -> int:
        """Return the exit code once the engine can never serve; otherwise go on for ever."""
        while not hasattr(self._app.state, "boot"):
            await asyncio.sleep(0)
        await asyncio.wait({self._app.state.boot})
        error = self._app.state.boot.exception()
        if error is not None:
            if not isinstance(error, CheckpointError):  # which was told already
                _log.error("cannot start", exc_info=error)
            return EXIT_NO_MODEL
        client = self._service.client
        with suppress(UnavailableError):
            await client.wait_ready()
            # What start-up made stays: collecting it again and again would only cost pauses.
            gc.collect()
            gc.freeze()
            logs.log_fields(_log, "ready", {"slots": client.slots})
        while client.phase != "failed":
            await client.changed()
        return EXIT_ENGINE_FAILED

    async def _drain(self) -> None:
        drain_s = self._config.api.drain_s
        logs.log_fields(_log, "draining", {"running": self._service.running})
        begin = asyncio.get_running_loop().time()
        await self._service.drain(drain_s)
        spent_s = asyncio.get_running_loop().time() - begin
        await self._service.client.drain(max(0.0, drain_s - spent_s))

    def _on_signal(self) -> None:
        if self._stop.is_set():
            _log.warning("second signal: quitting at once")
            self._service.client.kill()
            os._exit(0)
        self._service.draining = True
        self._stop.set()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals are ours."""
        yield


def _uvicorn_config(app: FastAPI, config: Config) -> uvicorn.Config:
    class Protocol(HttpProtocol):
        head_timeout_s = config.api.header_timeout_s

    return uvicorn.Config(
        app,
        http=Protocol,
        ws=WebSocketProtocol,
        ws_max_size=WS_MAX_BYTES,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=LINGER_S,
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    # Connections inherit it: what a client does not read stays with the engine's window, which is
    # bounded, instead of in kernel buffers that grow to megabytes.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    # Connections inherit it. asyncio sets it only on sockets made with an explicit protocol, and
    # without it a small write waits 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def main() -> int:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    return run(load_config(file))


if __name__ == "__main__":
    sys.exit(main())
