"""A server of our own, started for a measurement and stopped after it."""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from voxserve.bench.places import Place, placed
from voxserve.bench.result import ask
from voxserve.errors import UnavailableError

POLL_S = 0.25
STOP_S = 60.0
TAIL_LINES = 5


@asynccontextmanager
async def running(
    arguments: Sequence[str], log: Path, start_s: float, place: Place | None = None
) -> AsyncIterator[str]:
    """`voxserve serve` with these arguments on a free port of this machine; yields its URL.

    log: file for what it prints. place: its GPU and cores, if not all there are.
    Raises UnavailableError when it ends, or is not ready in time.
    """
    port = _free_port()
    command = [sys.executable, "-m", "voxserve", "serve", *arguments, "--port", str(port)]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *placed(command, place), stdout=output, stderr=output
        )
        try:
            url = f"http://127.0.0.1:{port}"
            await _until_ready(process, url, log, start_s)
            yield url
        finally:
            await _stop(process)


async def _until_ready(
    process: asyncio.subprocess.Process, url: str, log: Path, start_s: float
) -> None:
    give_up_s = time.monotonic() + start_s
    while await ask(url, "/ready", {}) is None:
        if process.returncode is not None:
            raise UnavailableError(f"the server ended at its start: {_tail(log)}")
        if time.monotonic() > give_up_s:
            raise UnavailableError(f"the server is not ready after {start_s:g} s: {_tail(log)}")
        await asyncio.sleep(POLL_S)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Drain it, and kill it when that takes too long."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return " | ".join(line for line in lines[-TAIL_LINES:] if line)
