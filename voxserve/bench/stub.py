"""A scripted stand-in that makes no speech: what the client is tested on and measured against.

It answers each request with silence at the times that the request's own text prescribes, and
notes when it wrote what. Every response says that it is a stub, so no result can take it for a
server. `python -m voxserve.bench.stub --port N` runs one.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from subprocess import PIPE, Popen

import httptools

from voxserve.bench.listening import STUB_HEADER

RATE_HZ = 24_000
_HEADS = {
    200: (
        f"HTTP/1.1 200 OK\r\n{STUB_HEADER}: 1\r\nContent-Type: audio/pcm; rate={RATE_HZ}\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    ),
    503: (
        f"HTTP/1.1 503 Unavailable\r\n{STUB_HEADER}: 1\r\nContent-Type: application/json\r\n"
        "Content-Length: 62\r\nConnection: close\r\n\r\n"
    ),
}
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_REFUSAL = b'{"error":{"code":"overloaded","message":"scripted refusal."}}'.ljust(62)


@dataclass(frozen=True, slots=True)
class Script:
    """What to do with one request.

    chunks: (seconds after the chunk before, or after the request; seconds of audio). cut: close
    the connection instead of ending the response.
    """

    chunks: tuple[tuple[float, float], ...]
    status: int = 200
    cut: bool = False

    def text(self) -> str:
        """The text that asks for it."""
        return json.dumps({"chunks": self.chunks, "status": self.status, "cut": self.cut})


def even(first_s: float, gap_s: float, chunk_s: float, chunks: int) -> Script:
    """Chunks of one length at one pace."""
    later = ((gap_s, chunk_s),) * (chunks - 1)
    return Script(((first_s, chunk_s), *later))


@dataclass(slots=True)
class Note:
    """What was asked and written for one request; times are CLOCK_MONOTONIC."""

    text: str
    received_s: float
    body: dict[str, object] = field(default_factory=dict)
    writes: list[tuple[float, float]] = field(default_factory=list)


class Stub:
    """The scripted responder. notes: one a request, in order of arrival.

    default: the script of any text that is not one itself.
    """

    def __init__(self, default: Script) -> None:
        self.default = default
        self.notes: list[Note] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> tuple[asyncio.Server, int]:
        """Listen on the loopback address. Returns the listener and its port."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", port, backlog=4096, reuse_port=True
        )
        return server, server.sockets[0].getsockname()[1]

    def script(self, text: str) -> Script:
        if not text.startswith("{"):
            return self.default
        asked = json.loads(text)
        chunks = tuple((float(after_s), float(audio_s)) for after_s, audio_s in asked["chunks"])
        return Script(chunks, int(asked["status"]), bool(asked["cut"]))


class _Connection(asyncio.Protocol):
    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._parser = httptools.HttpRequestParser(self)
        self._body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.get_method() != b"POST":
            self._transport.write(_NOT_FOUND)
            self._transport.close()
            return
        body = json.loads(self._body)
        text = str(body.get("input", ""))
        note = Note(text, time.monotonic(), body)
        self._stub.notes.append(note)
        task = asyncio.get_running_loop().create_task(self._answer(self._stub.script(text), note))
        self._stub.tasks.add(task)
        task.add_done_callback(self._stub.tasks.discard)

    async def _answer(self, script: Script, note: Note) -> None:
        head = _HEADS[script.status].encode()
        if script.status != 200:
            self._transport.write(head + _REFUSAL)
            self._transport.close()
            return
        due_s = note.received_s
        for after_s, audio_s in script.chunks:
            due_s += after_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            size = 2 * round(audio_s * RATE_HZ)
            # The head goes out with the first audio.
            self._transport.write(head + b"%x\r\n%s\r\n" % (size, bytes(size)))
            head = b""
            note.writes.append((time.monotonic(), size / 2 / RATE_HZ))
        if not script.cut:
            self._transport.write(head + b"0\r\n\r\n")
        self._transport.close()


@contextmanager
def stubs(script: Script, processes: int) -> Iterator[str]:
    """So many stub processes behind one port of this machine. Yields their URL."""
    first, later = script.chunks[0], script.chunks[-1]
    pace = f"--first-s {first[0]} --gap-s {later[0]} --chunk-s {later[1]} --chunks"
    command = [sys.executable, "-m", __name__, *pace.split(), str(len(script.chunks))]
    with ExitStack() as stack:
        port = 0
        for _ in range(processes):
            stub = stack.enter_context(
                Popen([*command, "--port", str(port)], stdout=PIPE, text=True)
            )
            stack.callback(stub.terminate)
            assert stub.stdout is not None
            port = int(stub.stdout.readline())
        yield f"http://127.0.0.1:{port}"


async def _serve(port: int, script: Script) -> None:
    server, port = await Stub(script).start(port)
    print(port, flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="Answer speech requests with scripted silence.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chunks", type=int, default=10)
    parser.add_argument("--first-s", type=float, default=0.05)
    parser.add_argument("--gap-s", type=float, default=0.2)
    parser.add_argument("--chunk-s", type=float, default=0.8)
    asked = parser.parse_args()
    script = even(asked.first_s, asked.gap_s, asked.chunk_s, asked.chunks)
    asyncio.run(_serve(asked.port, script))


if __name__ == "__main__":
    main()
