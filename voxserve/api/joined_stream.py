"""One answer from several requests of the engine, spoken one after another without a gap.

The next unit is submitted when the present one is about to end: before the audio made so far has
played out, but not so early that an answer holds two slots for long.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

from voxserve import wire
from voxserve.api.engine_stream import Message, Stream
from voxserve.api.units import Unit, UnitQueue, unit_seed
from voxserve.errors import UnavailableError, VoxserveError
from voxserve.plugin import ModelSpec
from voxserve.requests import Int32Array, Prompt
from voxserve.text.split import weight

LEAD_S = 1.5
"""Audio left to play when the next unit is submitted; many times the usual TTFA."""

LETTER_S = 0.05
"""What a letter takes to say, before anything was measured; too early is better than too late."""

MIN_AHEAD_S = 1.0
BYTES_PER_SAMPLE = 2
_REASONS = ("stop", "length", "guard")


@dataclass(frozen=True, slots=True)
class Pace:
    """ttfa_s: the target for the first audio, None for buffered answers. max_ahead_s: of real-time
    playback, None for no limit. heard_hz: samples of the model that make a second for the listener.
    lag: LM steps from a frame's first code to its last, which a unit takes on top of its frames.
    """

    ttfa_s: float | None
    max_ahead_s: float | None
    heard_hz: float
    lag: int = 0

    @classmethod
    def of(
        cls, spec: ModelSpec, speed: float, ttfa_s: float | None, max_ahead_s: float | None
    ) -> Self:
        lag = max(step for step, _ in spec.columns)
        return cls(ttfa_s, max_ahead_s, spec.sample_rate_hz * speed, lag)


@dataclass(slots=True)
class Part:
    """One unit being spoken. appended: rows that came behind its prompt. start_s: of the audio
    before it. made_s: of its own, taken here."""

    index: int
    unit: Unit
    prompt: Prompt
    stream: Stream
    text_ended: bool
    appended: list[Int32Array] = field(default_factory=list)
    start_s: float = 0.0
    made_s: float = 0.0


Submit = Callable[[int, Prompt, float | None, float | None], Stream]
"""(number of the unit, prompt, ttfa_s, max_ahead_s) -> its stream."""


class JoinedStream:
    """Iterate over it for (part, message): Started, PcmChunk … and Finished of every unit in turn;
    or Cancelled of the unit that `cancel` met. Raises as `Stream` does.

    seed, max_frames: of the whole answer. frames, reason: of what has finished so far.
    """

    def __init__(
        self, queue: UnitQueue, submit: Submit, pace: Pace, *, seed: int, max_frames: int | None
    ) -> None:
        self.frames = 0
        self.reason = "stop"
        self.cancelled = False
        self.parts = 0
        self._queue = queue
        self._submit = submit
        self._pace = pace
        self._seed = seed
        self._max_frames = max_frames
        self._current: Part | None = None
        self._next: Part | None = None
        self._made_s = 0.0
        self._plays_until = 0.0
        self._letter_s = LETTER_S
        self._wake = asyncio.Event()

    def start(self) -> None:
        """Submit the first unit, which must be startable. Raises UnavailableError."""
        self._current = self._started(0.0)

    def feed(self) -> None:
        """The queue or the text of a unit in it has changed."""
        for part in (self._current, self._next):
            if part is not None and not part.text_ended:
                rows = part.unit.rows()
                part.text_ended = part.unit.ended
                if len(rows) or part.text_ended:
                    part.appended.append(rows)
                    part.stream.append(rows, part.text_ended)
        self._start_next()
        self._wake.set()

    def cancel(self) -> None:
        """Stop the work at once. Cancelled follows if a unit was being spoken."""
        self.cancelled = True
        for part in (self._current, self._next):
            if part is not None:
                part.stream.cancel()
        self._wake.set()

    def taken(self, seconds: float) -> None:
        """The client's socket has taken this much audio, counted from the answer's start."""
        if self._current is not None:
            self._current.stream.taken(seconds - self._current.start_s)

    def played(self, seconds: float) -> None:
        """The client says that it has played this much."""
        self._plays_until = time.monotonic() + max(0.0, self._made_s - seconds)
        if self._current is not None and seconds > self._current.start_s:
            self._current.stream.played(seconds - self._current.start_s)

    def is_last(self, part: Part) -> bool:
        """Whether nothing will follow this part."""
        return self._next is None and part.text_ended and self._queue.drained

    def __aiter__(self) -> "JoinedStream":
        return self

    async def __anext__(self) -> tuple[Part, Message]:
        while True:
            part = self._current or await self._following()
            try:
                message = await anext(part.stream)
            except StopAsyncIteration:
                self._current = None
                continue
            except UnavailableError as error:
                self._again(part, error)
                continue
            if isinstance(message, wire.PcmChunk):
                self._count(part, message)
            elif isinstance(message, wire.Finished):
                self._finish(part, message)
            return part, message

    async def _following(self) -> Part:
        """The part behind the last one, as soon as there is one and it is time for it.

        Raises StopAsyncIteration at the end of the answer.
        """
        while not (self.cancelled or self._exhausted):
            if self._next is None and self._queue.drained:
                break
            early_s = self._early_s()
            if self._next is None and self._queue.startable and early_s <= 0:
                self._next = self._started(self._ahead_s())
            if self._next is not None:
                self._current, self._next = self._next, None
                self._current.start_s = self._made_s
                return self._current
            self._wake.clear()
            wait_s = early_s if self._queue.startable else None
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue
        raise StopAsyncIteration

    @property
    def _exhausted(self) -> bool:
        return self._max_frames is not None and self.frames >= self._max_frames

    def _started(self, ahead_s: float) -> Part:
        """Submit the next unit. No await stands between its prompt and this, so no text that
        arrives can fall in between. ahead_s: of audio that is played before its own."""
        unit, index = self._queue.head(), self.parts
        prompt = unit.prompt()
        if prompt.seed != (seed := unit_seed(self._seed, index)):
            prompt = replace(prompt, seed=seed)
        if self._max_frames is not None and index:
            left = self._max_frames - self.frames + self._pace.lag
            prompt = replace(prompt, max_steps=min(prompt.max_steps, left))
        ttfa_s, max_ahead_s = self._pace.ttfa_s, self._pace.max_ahead_s
        if ttfa_s is not None:
            ttfa_s = max(ttfa_s, ahead_s)
        if max_ahead_s is not None:
            max_ahead_s = max(min(max_ahead_s, MIN_AHEAD_S), max_ahead_s - ahead_s)
        stream = self._submit(index, prompt, ttfa_s, max_ahead_s)
        self._queue.drop_head()
        self.parts += 1
        return Part(index, unit, prompt, stream, unit.ended)

    def _start_next(self) -> None:
        """Submit the next unit if the present one is about to end."""
        part = self._current
        if part is None or self._next is not None or self.cancelled or self._max_frames is not None:
            return
        if self._pace.ttfa_s is None or not part.made_s or not self._queue.startable:
            return
        unmade_s = max(0.0, weight(part.unit.text) * self._letter_s - part.made_s)
        if self._ahead_s() + unmade_s <= LEAD_S:
            # What fails here fails again when the present unit is over, and is told then.
            with contextlib.suppress(VoxserveError):
                self._next = self._started(self._ahead_s())

    def _again(self, part: Part, error: UnavailableError) -> None:
        """An answer that has begun is not refused for being late: its next unit waits instead."""
        if error.code != "overloaded" or not part.index or part.made_s or self.cancelled:
            raise error
        part.stream = self._submit(part.index, part.prompt, None, self._pace.max_ahead_s)
        for rows in part.appended:
            part.stream.append(rows, part.text_ended and rows is part.appended[-1])

    def _count(self, part: Part, chunk: wire.PcmChunk) -> None:
        seconds = len(chunk.pcm) / BYTES_PER_SAMPLE / self._pace.heard_hz
        part.made_s += seconds
        self._made_s += seconds
        self._plays_until = max(self._plays_until, time.monotonic()) + seconds
        self._start_next()

    def _finish(self, part: Part, finished: wire.Finished) -> None:
        self.frames += finished.frames
        self.reason = max(self.reason, finished.reason, key=_REASONS.index)
        if part.made_s:
            self._letter_s = 0.8 * part.made_s / max(1, weight(part.unit.text))
        if self._exhausted and not self._queue.drained:
            self.reason = max(self.reason, "length", key=_REASONS.index)

    def _ahead_s(self) -> float:
        """Seconds of audio that were made but cannot have been played yet."""
        return max(0.0, self._plays_until - time.monotonic())

    def _early_s(self) -> float:
        """How long the next unit must wait for the listener, so that little is made in vain."""
        if self._pace.max_ahead_s is None:
            return 0.0
        return self._ahead_s() - self._pace.max_ahead_s / 2
