"""One speech request over HTTP/1.1, with a time stamp on every read from the socket.

A protocol on the event loop around httptools' parser: an HTTP library would do more than this and
cost several times as much a request, and the client's own delays are errors of the measurement.
Every request has its own connection, as every listener has.
"""

import asyncio
import json
import re
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from voxserve.bench.listening import STUB_HEADER, Listening, reason
from voxserve.bench.records import Order

_RATE = re.compile(rb"rate=(\d+)")
_ERROR_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect to; `address` is resolved once, so that no request waits for a resolver."""

    address: str
    port: int
    tls: ssl.SSLContext | None
    host: str
    head: bytes


async def endpoint(url: str, headers: dict[str, str]) -> Endpoint:
    """The endpoint of a URL. Raises OSError when its host has no address."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    found = await asyncio.get_running_loop().getaddrinfo(host, port)
    lines = [
        f"POST {parts.path}{'?' + parts.query if parts.query else ''} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Content-Type: application/json",
        "Accept: */*",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    head = "\r\n".join(lines).encode()
    return Endpoint(str(found[0][4][0]), port, tls, host, head)


def request_bytes(where: Endpoint, order: Order, shared: bytes = b"") -> bytes:
    """The request, so that nothing is left to encode when it is due.

    shared: the rest of the body, as `rest_of_body` makes it, which is not in what is returned.
    """
    body = json.dumps(order.body).encode()
    body = body[: len(body) - bool(shared)]
    size = len(body) + len(shared)
    return b"%s\r\nContent-Length: %d\r\n\r\n%s" % (where.head, size, body)


def rest_of_body(fields: dict[str, object]) -> bytes:
    """What follows a JSON object without its closing brace, for it to have these fields as well."""
    return b", " + json.dumps(fields).encode()[1:] if fields else b""


async def listen(where: Endpoint, request: bytes, listening: Listening) -> None:
    """Send a request and fill `listening` until the response is over.

    Never raises for what a server or a network does: that is what is being recorded.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    listening.sent_s = time.monotonic()
    transport: asyncio.Transport | None = None
    try:
        transport, _ = await loop.create_connection(
            lambda: _Exchange(request, listening, over),
            where.address,
            where.port,
            ssl=where.tls,
            server_hostname=where.host if where.tls else None,
        )
        await over
    except OSError as error:
        listening.problem = str(error) or type(error).__name__
        listening.end_s = time.monotonic()
    finally:
        if transport is not None:
            transport.abort()


class _Exchange(asyncio.Protocol):
    """httptools calls the on_* methods while it parses."""

    def __init__(self, request: bytes, listening: Listening, over: asyncio.Future[None]) -> None:
        self._request = request
        self._listening = listening
        self._over = over
        self._parser = httptools.HttpResponseParser(self)
        self._now_s = 0.0
        self._framed = False
        self._error = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._now_s = time.monotonic()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._listening.problem = f"not HTTP: {error}"
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._over.done():
            return
        self._now_s = time.monotonic()
        # A body without a length ends where its connection does.
        if exc is None and self._listening.status and not self._framed:
            self._listening.complete = True
        elif exc is not None:
            self._listening.problem = str(exc) or type(exc).__name__
        self._finish()

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"x-sample-rate" and value.isdigit():
            self._listening.sample_rate_hz = int(value)
        elif name == b"content-type" and (found := _RATE.search(value)):
            self._listening.sample_rate_hz = self._listening.sample_rate_hz or int(found[1])
        elif name in (b"content-length", b"transfer-encoding"):
            self._framed = True
        elif name == STUB_HEADER.encode():
            self._listening.stub = True

    def on_headers_complete(self) -> None:
        self._listening.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self._listening.status == 200:
            self._listening.hear(self._now_s, body)
        elif len(self._error) < _ERROR_BYTES:
            self._error += body

    def on_message_complete(self) -> None:
        self._listening.complete = True
        if self._listening.status != 200:
            self._listening.problem = reason(bytes(self._error))
        self._finish()

    def _finish(self) -> None:
        self._listening.end_s = self._now_s
        if not self._over.done():
            self._over.set_result(None)
