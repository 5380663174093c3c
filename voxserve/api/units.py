"""Units: the parts of an answer that are one request of the model each.

Most answers are one unit. Text that a model cannot hold at once, and text for a model that must
see whole sentences, are several, spoken one after another.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from voxserve.api.schemas import MAX_SEED
from voxserve.api.speech_request import UNSPEAKABLE, SpeechPlan, unspeakable
from voxserve.config import Config
from voxserve.errors import InvalidRequestError
from voxserve.plugin import HostLogic
from voxserve.requests import Int32Array, Prompt, SpeechRequest
from voxserve.text.clean import clean, speakable
from voxserve.text.split import Splitter

LONGEST_UNIT_CHARS = 800
"""Of a text in several units: the next one can then be made long before it is needed."""

READ_AT_ONCE_CHARS = 1000
"""Longer texts take a while to split and to read, so that is done beside the event loop."""

TOO_LONG = "input_too_long"
_SHORTEST_UNIT_CHARS = 8
_SHORT_TEXT = "A."


@dataclass(frozen=True, slots=True)
class TextLimits:
    """chars: of a whole text. context: positions that the engine gives one request."""

    chars: int
    context: int

    @classmethod
    def of(cls, config: Config) -> "TextLimits":
        return cls(config.api.max_input_chars, config.engine.context)


class Unit(Protocol):
    """text: known so far. ended: all of it is. startable: `prompt` can be asked for."""

    text: str

    @property
    def ended(self) -> bool: ...

    @property
    def startable(self) -> bool: ...

    @property
    def input_tokens(self) -> int: ...

    def prompt(self) -> Prompt:
        """Raises InvalidRequestError. Rows that arrive later come from `rows`."""

    def rows(self) -> Int32Array:
        """The rows [n, inject_columns] int32 that were not taken yet."""


class WholeUnit:
    """Its text is complete from the start."""

    ended = True
    startable = True

    def __init__(self, text: str, prompt: Prompt) -> None:
        self.text = text
        self._prompt = prompt

    @property
    def input_tokens(self) -> int:
        return self._prompt.input_tokens

    def prompt(self) -> Prompt:
        return self._prompt

    def rows(self) -> Int32Array:
        return np.zeros((0, self._prompt.inject.shape[1]), np.int32)


class LiveUnit:
    """Its text arrives while it is already being spoken."""

    def __init__(self, host: HostLogic, request: SpeechRequest) -> None:
        """Raises InvalidRequestError when the model cannot honour the request."""
        self.text = ""
        self.ended = False
        self.input_tokens = 0
        self._live = host.live_text(request)
        self._columns = host.spec.inject_columns
        self._rows: list[Int32Array] = []
        self._speakable = False

    @property
    def startable(self) -> bool:
        return self._speakable and (self.ended or bool(self._rows))

    def append(self, settled: str) -> None:
        """settled: cleaned text. Raises InvalidRequestError."""
        if settled:
            self._put(self._live.append(settled))
            self.text += settled
            self._speakable = self._speakable or speakable(settled)

    def end(self) -> None:
        self.ended = True
        self._put(self._live.end())

    def prompt(self) -> Prompt:
        return self._live.prompt(self.rows(), self.ended)

    def rows(self) -> Int32Array:
        rows, self._rows = self._rows, []
        return np.concatenate(rows) if rows else np.zeros((0, self._columns), np.int32)

    def _put(self, rows: Int32Array) -> None:
        if len(rows):
            self._rows.append(rows)
            self.input_tokens += len(rows)


class UnitQueue:
    """Units in the order in which they are spoken. closed: no more will come."""

    def __init__(self, units: Sequence[Unit] = (), *, closed: bool = False) -> None:
        self.closed = closed
        self._all: list[Unit] = list(units)
        self._waiting: deque[Unit] = deque(units)

    def put(self, unit: Unit) -> None:
        self._all.append(unit)
        self._waiting.append(unit)

    @property
    def startable(self) -> bool:
        """`head` is there and can be started."""
        self._skip_silent()
        return bool(self._waiting) and self._waiting[0].startable

    @property
    def drained(self) -> bool:
        """Nothing waits and nothing more will come."""
        self._skip_silent()
        return self.closed and not self._waiting

    @property
    def input_tokens(self) -> int:
        """Of all units there were."""
        return sum(unit.input_tokens for unit in self._all)

    def head(self) -> Unit:
        """The unit that is next, if `startable`."""
        self._skip_silent()
        return self._waiting[0]

    def drop_head(self) -> None:
        self._waiting.popleft()

    def _skip_silent(self) -> None:
        """What has ended without anything to speak in it."""
        while self._waiting and self._waiting[0].ended and not self._waiting[0].startable:
            self._waiting.popleft()


def fits(host: HostLogic, request: SpeechRequest, text: str, context: int) -> bool:
    """Whether one request of the model can hold the text, whatever else is wrong with it."""
    try:
        _prompt(host, request, text, context)
    except InvalidRequestError as error:
        return error.code != TOO_LONG
    return True


def whole_units(host: HostLogic, request: SpeechRequest, context: int) -> list[WholeUnit]:
    """The request's text in as many units as the model needs, one if that will do.

    Raises InvalidRequestError as `HostLogic.prompt` does, but never for the text's length; and
    `input_unspeakable` only when none of the text can be spoken.
    """
    units = list(_units(host, request, clean(request.text), LONGEST_UNIT_CHARS, context))
    if not units:
        raise unspeakable()
    return units


def units_or_silence(host: HostLogic, plan: SpeechPlan, context: int) -> list[WholeUnit]:
    """The units of the plan's text; none where nothing can be spoken and silence was asked for.

    A model may have no sound for what others speak, such as another script. Raises as
    `whole_units` does.
    """
    if plan.silent:
        return []
    try:
        return whole_units(host, plan.request, context)
    except InvalidRequestError as error:
        if error.code == UNSPEAKABLE and plan.silence_if_unspeakable:
            return []
        raise


def check_short_text(host: HostLogic, request: SpeechRequest, context: int) -> None:
    """Raises InvalidRequestError naming the field for what the model cannot honour in any text:
    a clip that is too short, a transcript that leaves no room."""
    try:
        list(_units(host, request, _SHORT_TEXT, _SHORTEST_UNIT_CHARS - 1, context))
    except InvalidRequestError as error:
        if error.code != UNSPEAKABLE:
            raise


def unit_seed(seed: int, index: int) -> int:
    """The seed of a unit; the first one has the request's own."""
    if not index:
        return seed
    digest = hashlib.sha256(f"{seed} {index}".encode()).digest()
    return int.from_bytes(digest[:8], "little") & MAX_SEED


def _units(
    host: HostLogic, request: SpeechRequest, text: str, most_chars: int, context: int
) -> Iterator[WholeUnit]:
    try:
        yield WholeUnit(text, _prompt(host, request, text, context))
        return
    except InvalidRequestError as error:
        if error.code == UNSPEAKABLE:
            return
        if error.code != TOO_LONG:
            raise
        if most_chars < _SHORTEST_UNIT_CHARS:
            raise _what_leaves_no_room(host, request, text, context, error) from error
    for piece in _packed(text, most_chars):
        if speakable(piece):
            yield from _units(host, request, piece, most_chars // 2, context)


def _what_leaves_no_room(
    host: HostLogic, request: SpeechRequest, text: str, context: int, error: InvalidRequestError
) -> InvalidRequestError:
    """`error`, that a short text is too long, as one of the field that stands before the text."""
    clip = request.clip
    if clip is not None and clip.text:
        shorter = replace(clip, text=clip.text[:_SHORTEST_UNIT_CHARS])
        if fits(host, replace(request, clip=shorter), text, context):
            return _too_much("ref_text", clip.text, error)
    if request.instructions and fits(host, replace(request, instructions=None), text, context):
        return _too_much("instructions", request.instructions, error)
    return error


def _too_much(name: str, given: str, error: InvalidRequestError) -> InvalidRequestError:
    return InvalidRequestError(
        f"{name} has {len(given)} characters, which leave no room for a text: {error.message}",
        param=name,
    )


def _packed(text: str, most_chars: int) -> Iterator[str]:
    """The sentences of a text, as many together as `most_chars` hold."""
    splitter = Splitter(max_chars=most_chars)
    held = ""
    for sentence in [*splitter.feed(text), *splitter.end()]:
        if held and len(held) + len(sentence) > most_chars:
            yield held.strip()
            held = ""
        held += sentence
    yield held.strip()


def _prompt(host: HostLogic, request: SpeechRequest, text: str, context: int) -> Prompt:
    """The model's own limits are known to `host.prompt`, those of the engine are not."""
    prompt = host.prompt(request if text == request.text else replace(request, text=text))
    needed, most = len(prompt.rows) + prompt.max_steps - 1, min(context, host.spec.max_context)
    if needed > most:
        raise InvalidRequestError(
            f"the text needs {needed} positions, at most {most}", param="input", code=TOO_LONG
        )
    return prompt
