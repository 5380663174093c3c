"""One request as the API process sees it: messages of the engine in, wishes of the client out."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from voxserve import wire
from voxserve.errors import VoxserveError
from voxserve.requests import Int32Array

Message = wire.Started | wire.PcmChunk | wire.Finished | wire.Cancelled

_LEAST_STEP_S = 0.5
_STEPS_A_WINDOW = 8
"""Audio taken between two `wire.Progress` is a window's part: each costs both processes a turn."""


class Stream:
    """Iterate over it for Started, PcmChunk …, then Finished, or Cancelled after `cancel`.

    Iteration raises the VoxserveError of a request that failed, after the audio that came before.
    The queue is bounded by the `window_s` that the request was submitted with: the engine makes no
    more audio than that beyond what `taken` reported.
    """

    def __init__(
        self, request: int, send: Callable[[wire.ToEngine], None], window_s: float = 0.0
    ) -> None:
        self.request = request
        self.over = False
        self.release_s: float | None = None
        self._send = send
        self._items: deque[Message] = deque()
        self._error: VoxserveError | None = None
        self._cancelled_at: float | None = None
        self._reported_s = 0.0
        self._step_s = max(_LEAST_STEP_S, window_s / _STEPS_A_WINDOW)
        self._wake = asyncio.Event()

    def append(self, rows: Int32Array, ended: bool) -> None:
        """More injected text rows; `ended` says that they are the last."""
        data = rows.astype("<i4", copy=False).tobytes()
        self._to_engine(wire.AppendText(self.request, data, ended))

    def cancel(self) -> None:
        """Stop the work at once. Audio not read yet is dropped; Cancelled follows."""
        if self._cancelled_at is not None or self.over:
            return
        self._cancelled_at = time.monotonic()
        self._items.clear()
        self._to_engine(wire.Cancel(self.request))

    def taken(self, seconds: float) -> None:
        """The client's socket has taken this many seconds of audio, counted from the start."""
        if seconds - self._reported_s >= self._step_s:
            self._reported_s = seconds
            self._to_engine(wire.Progress(self.request, seconds))

    def played(self, seconds: float) -> None:
        """The client says that it has played this many seconds."""
        self._to_engine(wire.Playback(self.request, seconds))

    def receive(self, message: Message) -> None:
        """From the engine client: queue a message of this request."""
        if isinstance(message, wire.Finished | wire.Cancelled):
            self.over = True
            if self._cancelled_at is not None:
                self.release_s = time.monotonic() - self._cancelled_at
        if self._cancelled_at is None or isinstance(message, wire.Cancelled):
            self._items.append(message)
        self._wake.set()

    def fail(self, error: VoxserveError) -> None:
        """From the engine client: nothing follows any more."""
        self.over = True
        self._error = error
        self._wake.set()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        while not self._items:
            if self._error is not None:
                raise self._error
            if self.over:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._items.popleft()

    def _to_engine(self, message: wire.ToEngine) -> None:
        if not self.over:
            self._send(message)
