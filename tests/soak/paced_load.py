"""Clients of the paced model: what they hear, and when, whatever the machine does beside."""

import asyncio
import json
import socket
import time
from dataclasses import dataclass, field

from tests.api.server_process import ServerProcess

FRAME_S, FRAME_BYTES = 0.08, 3840
BYTES_PER_S = 48_000
RECEIVE_BUFFER_BYTES = 16_384
STALL_S = 0.02


@dataclass(slots=True)
class Heard:
    """One stream. pauses_s: what a player would wait in all, beginning at the first byte.

    retry_after: the header of a refusal.
    """

    status: int = 0
    ttfa_s: float = 0.0
    seconds: float = 0.0
    pauses_s: float = 0.0
    complete: bool = False
    retry_after: str = ""
    answered_s: float = field(default=0.0)


async def listen(
    server: ServerProcess, frames: int, *, rate: float | None = None, timeout_s: float = 120
) -> Heard:
    """A pcm stream of so many frames. rate: read at this multiple of real time, with a small
    buffer, so that what is not read waits at the server; None: as it comes."""
    heard, begin = Heard(), time.monotonic()
    raw = socket.socket()
    if rate is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    raw.setblocking(False)
    async with asyncio.timeout(timeout_s):
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", server.port))
        limit = 65_536 if rate is None else 4096
        reader, writer = await asyncio.open_connection(sock=raw, limit=limit)
        try:
            await _speak(server, reader, writer, frames, rate, heard, begin)
        finally:
            writer.close()
    return heard


async def _speak(
    server: ServerProcess,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    frames: int,
    rate: float | None,
    heard: Heard,
    begin: float,
) -> None:
    body = json.dumps({"input": "x" * frames, "response_format": "pcm"})
    head = f"Host: 127.0.0.1:{server.port}\r\nContent-Length: {len(body)}\r\nConnection: close"
    writer.write(f"POST /v1/audio/speech HTTP/1.1\r\n{head}\r\n\r\n{body}".encode())
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    heard.status = int(lines[0].split(" ")[1])
    heard.retry_after = headers.get("retry-after", "")
    heard.answered_s = time.monotonic() - begin
    if heard.status != 200:
        return
    first = last = 0.0
    while size := int(await reader.readline(), 16):
        left = size
        while left:
            piece = await reader.read(min(left, 4096))
            if not piece:
                return
            left -= len(piece)
            if rate is not None:
                await asyncio.sleep(len(piece) / BYTES_PER_S / rate)
        await reader.readline()
        last = time.monotonic()
        first = first or last
        late_s = last - first - heard.pauses_s - heard.seconds
        heard.pauses_s += max(0.0, late_s) if heard.seconds else 0.0
        heard.seconds += size / BYTES_PER_S
    heard.ttfa_s = first - begin
    heard.complete = round(heard.seconds * BYTES_PER_S) == frames * FRAME_BYTES
