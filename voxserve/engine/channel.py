"""The engine's end of the socket to the API process: whole messages in, buffered messages out."""

import socket
from collections import deque
from itertools import islice

from voxserve.wire import Frames, FromEngine, ToEngine, decode_to_engine, encode_parts

_READ_BYTES = 256 * 1024
_SEND_BUFFER_BYTES = 4 * 2**20
"""Room for the chunks of one batch, as far as the system grants it, to write them in one turn."""
_WRITE_BUFFERS = 128


class ChannelClosed(Exception):
    """The API process closed its end, or died."""


class Channel:
    """Never blocks: `send` only queues, `flush` writes what the kernel takes at the moment.

    What waits here is bounded by the window of every request (`wire.Submit.window_s`).
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._socket = connection
        self._frames = Frames()
        self._outgoing: deque[bytes | memoryview] = deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def backlog(self) -> bool:
        """Whether queued bytes wait for the socket to become writable."""
        return bool(self._outgoing)

    def receive(self) -> list[ToEngine]:
        """All messages that have arrived.

        Raises ChannelClosed at the end of the stream, ValueError (msgspec's errors included) when
        the bytes are no message.
        """
        messages: list[ToEngine] = []
        while True:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return messages
            except ConnectionError as error:
                raise ChannelClosed from error
            if not data:
                raise ChannelClosed
            messages += [decode_to_engine(body) for body in self._frames.feed(data)]
            if len(data) < _READ_BYTES:
                return messages

    def send(self, message: FromEngine) -> None:
        self._outgoing += encode_parts(message)

    def flush(self) -> None:
        """Write queued messages until the socket is full. Raises ChannelClosed."""
        outgoing = self._outgoing
        while outgoing:
            buffers = list(islice(outgoing, _WRITE_BUFFERS))
            try:
                written = self._socket.sendmsg(buffers)
            except BlockingIOError:
                return
            except ConnectionError as error:
                raise ChannelClosed from error
            while written and written >= len(outgoing[0]):
                written -= len(outgoing.popleft())
            if written:
                outgoing[0] = memoryview(outgoing[0])[written:]

    def close(self) -> None:
        self._socket.close()
