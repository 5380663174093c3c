"""The text of one utterance on its way from a WebSocket client to the model, in units."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from voxserve.api.speech_request import UNSPEAKABLE, SpeechPlan, check_length
from voxserve.api.units import (
    READ_AT_ONCE_CHARS,
    LiveUnit,
    TextLimits,
    UnitQueue,
    WholeUnit,
    fits,
    whole_units,
)
from voxserve.errors import InvalidRequestError
from voxserve.plugin import HostLogic
from voxserve.text.clean import LiveCleaner, ends_sentence, speakable
from voxserve.text.split import Splitter

Granularity = Literal["auto", "none", "sentence", "clause"]

_TAIL_CHARS = 16
_STEP_CHARS = 32
"""Live text is measured and handed on in steps of this size."""

_SLICE_CHARS = 8 * _STEP_CHARS
"""Of text that is taken in a row: a few milliseconds' work, up to 12 where nothing ends in it."""

_ROOM_CHARS = 96
"""A live unit that could not hold so many more characters ends at the next space."""


class UtteranceText:
    """granularity `sentence` or `clause`: each is a unit. Otherwise, with a model that streams
    text, one live unit, and another where that is full; with any other model a short first unit
    and then sentences (`auto`), or everything at the end (`none`).

    queue: the units. by_sentence: the client hears of each unit. chars: taken from the client so
    far. ended: no more comes. held: some came since the last `release`.
    """

    def __init__(
        self, host: HostLogic, plan: SpeechPlan, limits: TextLimits, granularity: Granularity
    ) -> None:
        """Raises InvalidRequestError when the model cannot honour the request."""
        self.chars = 0
        self.ended = False
        self.held = False
        self.queue = UnitQueue()
        self._host = host
        self._plan = plan
        self._limits = limits
        self._cleaner = LiveCleaner()
        self._tail = ""
        self._pieces: list[str] = []
        self._live: _LiveUnits | None = None
        self._splitter: Splitter | None = None
        # The rules look at what follows a number too, so that they need more than a few words.
        streams = host.info.text_streaming and not plan.normalise
        if granularity == "sentence" or (granularity == "auto" and not streams):
            self._splitter = Splitter("sentence" if streams else "clause", "sentence")
        elif granularity == "clause":
            self._splitter = Splitter("clause", "clause")
        self.by_sentence = self._splitter is not None
        if streams and not self.by_sentence:
            self._live = _LiveUnits(host, plan, self.queue, limits.context)
        elif streams:
            host.live_text(plan.request)  # What the model cannot honour is said now.

    @property
    def ends_sentence(self) -> bool:
        return ends_sentence(self._tail)

    def append(self, piece: str) -> Iterator[None]:
        """Takes the piece slice by slice, with a pause for others at each yield; nobody else may
        change the text before it ends. Raises InvalidRequestError at first for what is wrong with
        the piece; then it was not taken."""
        check_length(self.chars + len(piece), self._limits.chars)
        settled = self._cleaner.feed(piece)
        self.chars += len(piece)
        self.held = True
        self._tail = (self._tail + piece)[-_TAIL_CHARS:]
        for start in range(0, len(settled), _SLICE_CHARS):
            if start:
                yield
            self._take(settled[start : start + _SLICE_CHARS])

    def release(self) -> bool:
        """Make a unit of what may yet turn out to be half a sentence, if units are sentences and
        anything is held. Raises InvalidRequestError when half a character is left over."""
        if self._splitter is None or not self.held:
            return False
        self.held = False
        self._take(self._cleaner.end())
        self._put(self._splitter.end())
        return True

    async def end(self) -> None:
        """Raises InvalidRequestError when half a character is left over."""
        rest = self._cleaner.end()
        if self._live is None and self._splitter is None:
            text = "".join([*self._pieces, rest])
            beside = len(text) > READ_AT_ONCE_CHARS
            units = await asyncio.to_thread(self._units, text) if beside else self._units(text)
            # Together, so that nobody takes it for an end without anything to speak.
            self.ended = True
            for unit in units:
                self.queue.put(unit)
        else:
            self.ended = True
            self._take(rest)
            if self._live is not None:
                self._live.end()
            elif self._splitter is not None:
                self._put(self._splitter.end())
        self.queue.closed = True

    def _take(self, settled: str) -> None:
        if not settled:
            return
        if self._live is not None:
            self._live.append(settled)
        elif self._splitter is not None:
            self._put(self._splitter.feed(settled))
        else:
            self._pieces.append(settled)

    def _put(self, texts: list[str]) -> None:
        for text in texts:
            for unit in self._units(text):
                self.queue.put(unit)

    def _units(self, text: str) -> list[WholeUnit]:
        """Of what can be spoken in it."""
        if not speakable(text):
            return []
        try:
            said = replace(self._plan.request, text=self._plan.said(text))
            return whole_units(self._host, said, self._limits.context)
        except InvalidRequestError as error:
            if error.code != UNSPEAKABLE:
                raise
            return []


class _LiveUnits:
    """Live text as one unit after another, each as long as the model can hold.

    A unit that is three quarters full ends with its sentence. The end of a sentence is only known
    with the character behind it, so what was handed on before is never taken back.
    """

    def __init__(self, host: HostLogic, plan: SpeechPlan, queue: UnitQueue, context: int) -> None:
        self._host = host
        self._request = plan.request
        self._queue = queue
        self._context = context
        self._begin()

    def append(self, settled: str) -> None:
        for start in range(0, len(settled), _STEP_CHARS):
            self._step(settled[start : start + _STEP_CHARS])

    def end(self) -> None:
        self._unit.end()

    def _begin(self) -> None:
        self._unit = LiveUnit(self._host, self._request)
        self._queue.put(self._unit)
        self._full = False
        # No text of so few characters comes near the limit, whatever its script.
        self._measure_at = self._host.info.max_input_chars // 8
        self._sentences = Splitter()

    def _step(self, piece: str) -> None:
        cut = self._cut(piece)
        if cut is None:
            self._unit.append(piece)
        else:
            self._unit.append(piece[:cut])
            self._unit.end()
            self._begin()
            self._sentences.feed(piece[cut:])
            self._unit.append(piece[cut:])
        chars = len(self._unit.text)
        if not self._full and chars >= self._measure_at:
            self._measure_at = chars + _STEP_CHARS
            self._full = not self._holds(chars // 3)

    def _cut(self, piece: str) -> int | None:
        """Where in the piece the unit has to end."""
        sentences = self._sentences.feed(piece)
        if not self._full:
            return None
        behind = len(self._sentences.held)
        if sentences and behind <= len(piece):
            return len(piece) - behind
        if self._holds(_ROOM_CHARS):
            return None
        return next((at for at, character in enumerate(piece) if character.isspace()), 0)

    def _holds(self, more_chars: int) -> bool:
        """Whether the unit's text could go on for so many characters of its kind."""
        text = self._unit.text
        filler = (text * (1 + more_chars // max(1, len(text))))[:more_chars]
        return not text.strip() or fits(self._host, self._request, text + filler, self._context)
