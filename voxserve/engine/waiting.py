"""The one place where the engine's thread sleeps."""

import os
import selectors
from contextlib import suppress

from voxserve.engine.channel import Channel


class Waiter:
    """Sleeps until the channel has bytes or room, `wake` is called, or the time is up."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._read, selectors.EVENT_READ)
        self._selector.register(channel, selectors.EVENT_READ)
        self._for_room = False

    def wake(self) -> None:
        """End the sleep; from any thread or a signal handler. A full pipe wakes as well."""
        with suppress(BlockingIOError):
            os.write(self._write, b"w")

    def wait(self, timeout_s: float) -> bool:
        """Whether the channel has something to read. Returns at once when the time is <= 0."""
        if self._channel.backlog != self._for_room:
            self._for_room = self._channel.backlog
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._for_room else 0)
            self._selector.modify(self._channel, events)
        readable = False
        for key, events in self._selector.select(max(timeout_s, 0)):
            if key.fileobj == self._read:
                os.read(self._read, 4096)
            elif events & selectors.EVENT_READ:
                readable = True
        return readable

    def close(self) -> None:
        self._selector.close()
        os.close(self._read)
        os.close(self._write)
