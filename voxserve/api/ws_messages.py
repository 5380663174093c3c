"""What clients may send over `WS /v1/audio/speech/stream`, parsed and checked."""

from dataclasses import dataclass
from typing import Any

from voxserve.api.body import parse_object
from voxserve.errors import InvalidRequestError

DEFAULT_CONTEXT = "default"
MAX_ID_CHARS = 128
_FLUSHES = ("input.flush", "input.commit", "input.done")


@dataclass(frozen=True, slots=True)
class Configure:
    """fields: everything but `type` and `event_id`, for schemas.SessionFields."""

    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    context: str
    text: str


@dataclass(frozen=True, slots=True)
class Flush:
    """close: the context may be forgotten after it. done: it was spelled `input.done`."""

    context: str
    close: bool
    done: bool


@dataclass(frozen=True, slots=True)
class CancelInput:
    """context: None means all of them."""

    context: str | None
    played_ms: float | None


@dataclass(frozen=True, slots=True)
class Report:
    context: str
    played_ms: float


@dataclass(frozen=True, slots=True)
class Ping:
    pass


@dataclass(frozen=True, slots=True)
class Close:
    pass


ClientMessage = Configure | Text | Flush | CancelInput | Report | Ping | Close


def parse_message(data: str) -> tuple[ClientMessage, str | None]:
    """The message and its `event_id`. Raises InvalidRequestError saying what is wrong.

    Text may hold half a surrogate pair: the other half may come in the next message.
    """
    fields = parse_object(data)
    event_id: str | None = _optional(fields, "event_id", str)
    return _message(fields), event_id


def event_id_of(data: str) -> str | None:
    """The `event_id` of a message that was refused, if it had a decent one."""
    try:
        event_id: str | None = _optional(parse_object(data), "event_id", str)
        return event_id
    except InvalidRequestError:
        return None


def _message(fields: dict[str, Any]) -> ClientMessage:
    kind = _required(fields, "type", str)
    if kind == "session.config":
        rest = {name: fields[name] for name in fields if name not in ("type", "event_id")}
        return Configure(rest)
    if kind == "input.text":
        return Text(_context(fields), _required(fields, "text", str))
    if kind in _FLUSHES:
        close = _optional(fields, "close", bool) or False
        return Flush(_context(fields), close, kind == "input.done")
    if kind == "input.cancel":
        context = _context(fields) if fields.get("context_id") is not None else None
        return CancelInput(context, _milliseconds(fields, required=False))
    if kind == "playback.report":
        return Report(_context(fields), _milliseconds(fields, required=True) or 0.0)
    if kind == "ping":
        return Ping()
    if kind == "session.close":
        return Close()
    raise InvalidRequestError(
        f"type {kind[:64]!r} is unknown", param="type", code="unknown_message_type"
    )


def _context(fields: dict[str, Any]) -> str:
    context = _optional(fields, "context_id", str)
    if context is None:
        return DEFAULT_CONTEXT
    if not 0 < len(context) <= MAX_ID_CHARS or not context.isprintable():
        raise InvalidRequestError(
            f"context_id must be 1 to {MAX_ID_CHARS} printable characters", param="context_id"
        )
    return str(context)


def _milliseconds(fields: dict[str, Any], *, required: bool) -> float | None:
    value: Any = fields.get("played_ms")
    if value is None and not required:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < float("inf"):
        raise InvalidRequestError(
            f"played_ms is {str(value)[:40]!r}, must be a number from 0", param="played_ms"
        )
    return float(value)


def _required(fields: dict[str, Any], name: str, kind: type) -> Any:
    if name not in fields:
        raise InvalidRequestError(f"{name} is missing", param=name)
    value = fields[name]
    if not isinstance(value, kind):
        raise InvalidRequestError(
            f"{name} must be {_called(kind)}, not {type(value).__name__}", param=name
        )
    return value


def _optional(fields: dict[str, Any], name: str, kind: type) -> Any:
    return None if fields.get(name) is None else _required(fields, name, kind)


def _called(kind: type) -> str:
    return {str: "a string", bool: "true or false"}[kind]
