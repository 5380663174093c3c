"""Encoding beside the event loop: each stream's PCM passes through worker threads, in order."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from voxserve.api.metrics import BoundHistogram
from voxserve.audio.formats import DEFAULT_FORMAT, FORMATS
from voxserve.audio.output import Output, OutputStream, Piece

_log = logging.getLogger(__name__)
_WARM_HZ = 24_000


class Encoders:
    """The threads that all streams share.

    A stream waits for one piece before it asks for the next, so no more pieces are queued here
    than streams are open, and one that is not encoded is not taken from its engine either.
    """

    def __init__(self, threads: int, seconds: BoundHistogram) -> None:
        self._workers = ThreadPoolExecutor(threads, thread_name_prefix="encoder")
        self._seconds = seconds

    def warm(self) -> None:
        """Load what the default format needs, so that no request waits for it. Blocks."""
        try:
            encoder = FORMATS[DEFAULT_FORMAT].encoder(_WARM_HZ, _WARM_HZ, True)
        except ImportError as error:
            _log.warning("only wav and pcm can be served: %s", error)
            return
        encoder.finish()
        encoder.close()

    def open(self, output: Output, *, whole: bool) -> "Encoding":
        """A stream, of which nothing exists yet before `prepare` or the first `feed`."""
        return Encoding(output, self._workers, self._seconds, whole=whole)


class Encoding:
    """One stream. Its methods raise GenerationError when it cannot be encoded.

    output: what it was opened for. Must be closed; after `close` it gives no bytes any more.
    """

    def __init__(
        self, output: Output, workers: ThreadPoolExecutor, seconds: BoundHistogram, *, whole: bool
    ) -> None:
        self.output = output
        self._whole = whole
        self._workers = workers
        self._seconds = seconds
        self._closed = False
        self._stream: OutputStream | None = None
        self._lock = threading.Lock()  # of `_stream` and `_closed`; held while encoding

    def prepare(self) -> None:
        """Load and open what the stream needs while its first audio is still being made."""
        if not self.output.verbatim:
            self._workers.submit(self._run, lambda stream: Piece())

    async def feed(self, pcm: bytes) -> Piece:
        """16-bit mono PCM at the model's rate in, what can go out by now back."""
        return await self._turn(lambda stream: stream.feed(pcm))

    async def finish(self) -> Piece:
        """The end of the stream, once; nothing after that."""
        piece = await self._turn(lambda stream: stream.finish())
        self.close()
        return piece

    def close(self) -> None:
        """Free the encoder, behind the piece that it may be busy with. Returns at once."""
        if self.output.verbatim:
            self._free()
        else:
            self._workers.submit(self._free)

    async def _turn(self, step: Callable[[OutputStream], Piece]) -> Piece:
        if self.output.verbatim:
            return self._run(step)
        begin = time.monotonic()
        piece = await asyncio.get_running_loop().run_in_executor(self._workers, self._run, step)
        self._seconds.observe(time.monotonic() - begin, self.output.format.name)
        return piece

    def _run(self, step: Callable[[OutputStream], Piece]) -> Piece:
        with self._lock:
            if self._closed:
                return Piece()
            if self._stream is None:
                self._stream = self.output.open(whole=self._whole)
            return step(self._stream)

    def _free(self) -> None:
        with self._lock:
            self._closed = True
            if self._stream is not None:
                self._stream.close()
                self._stream = None
