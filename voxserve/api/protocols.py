"""uvicorn's connections, with what it leaves open: limits on request heads, errors in our shape,
and the transport handed to the application, which must be able to cut a response short.
"""

import asyncio
import contextlib
import json
from typing import Any

from uvicorn._types import ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Request

from voxserve.api.errors import error_body
from voxserve.errors import InvalidRequestError

MAX_HEAD_BYTES = 64 * 2**10


class HttpProtocol(HttpToolsProtocol):
    """head_timeout_s: from the connection, or a request's first byte, to the end of its head."""

    head_timeout_s = 10.0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.head_timeout_s, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is not None:
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(f"request head has more than {MAX_HEAD_BYTES} bytes")
                return
            self._head_bytes += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["transport"] = self.transport
        if self._head_timer is None:
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(self.head_timeout_s, self.transport.abort)

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(_bad_request(msg))
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """An idle connection ends; one that does not even take the last bytes ends hard."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Hands on its transport, answers a head that it cannot read, and takes a refused handshake for
    a finished one."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        failure = self.conn.handshake_exc
        if failure is not None and not self.handshake_initiated:
            # Nobody else would ever answer or close, as no event comes of it.
            self.handshake_initiated = self.handshake_complete = True
            self.transport.write(_bad_request(f"the handshake cannot be read: {failure}"))
            self.transport.close()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        with contextlib.suppress(AttributeError):  # no scope when the handshake was refused
            self.scope["state"]["transport"] = self.transport

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                # uvicorn would do the same, and write a traceback into the log for every client's
                # mistake.
                self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True


def _bad_request(message: str) -> bytes:
    """A whole response in our shape of an error."""
    error = InvalidRequestError(message, code="invalid_http")
    body = json.dumps(error_body(error, None)).encode()
    return (
        b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        b"content-length: " + str(len(body)).encode() + b"\r\n\r\n" + body
    )
