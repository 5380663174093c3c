"""Requests in the shape of ElevenLabs' API, turned into our own fields."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from voxserve.api.schemas import Finite, SessionFields, SpeechFields, explain, parse
from voxserve.errors import InvalidRequestError, VoxserveError

DEFAULT_OUTPUT = "mp3_44100_128"
_OUTPUT = re.compile(r"(mp3|pcm|opus|wav)_(\d{4,5})(?:_\d{1,3})?")
_THEIR_MODELS = "eleven_"
MAX_INACTIVITY_S = 180.0
_THEIR_NAMES = {
    "input": "text",
    "model": "model_id",
    "language": "language_code",
    "response_format": "output_format",
    "sample_rate": "output_format",
    "speed": "voice_settings.speed",
    "text_normalization": "apply_text_normalization",
}


class _Fields(BaseModel):
    """Their APIs grow: what is not known is not refused."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


class VoiceSettings(_Fields):
    """stability, similarity_boost, style and the speaker boost have no counterpart here."""

    speed: Annotated[float, Field(ge=0.25, le=4.0), Finite] | None = None


class SpeechBody(_Fields):
    """The body of `POST /v1/text-to-speech/{voice}`."""

    text: str
    model_id: str | None = None
    voice_settings: VoiceSettings | None = None
    language_code: str | None = None
    seed: int | None = None
    apply_text_normalization: Literal["auto", "on", "off"] | None = None


class Query(_Fields):
    """What stands in the address of a WebSocket."""

    model_id: str | None = None
    output_format: str = DEFAULT_OUTPUT
    language_code: str | None = None
    seed: int | None = None
    auto_mode: bool = False
    inactivity_timeout: Annotated[float, Field(ge=1, le=MAX_INACTIVITY_S), Finite] = 20.0
    apply_text_normalization: Literal["auto", "on", "off"] | None = None


class Message(_Fields):
    """What a client sends over a WebSocket."""

    text: str | None = None
    context_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    contextId: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    voice_settings: VoiceSettings | None = None
    flush: bool | None = None
    close_context: bool | None = None
    close_socket: bool | None = None

    @property
    def context(self) -> str | None:
        return self.context_id or self.contextId


def read(kind: type[BaseModel], data: Mapping[str, Any], *, strict: bool = True) -> Any:
    """An object of that kind. strict: values have their own types, and are not all text.

    Raises InvalidRequestError naming the field.
    """
    try:
        return kind.model_validate(data, strict=strict)
    except ValidationError as error:
        raise explain(error) from error


@contextmanager
def named_as_theirs() -> Iterator[None]:
    """Errors raised inside name fields as the client knows them."""
    try:
        yield
    except VoxserveError as error:
        error.param = _THEIR_NAMES.get(error.param or "", error.param)
        raise


def speech_fields(
    voice: str, body: SpeechBody, output_format: str, *, stream: bool
) -> SpeechFields:
    settings = body.voice_settings or VoiceSettings()
    named = _named(voice, body, output_format) | {"speed": settings.speed}
    fields, _ = parse(
        SpeechFields, {**named, "input": body.text, "stream": stream}, strict_fields=True
    )
    return fields


def session_fields(voice: str, query: Query) -> SessionFields:
    idle = {"idle_timeout_s": query.inactivity_timeout, "audio_transport": "json"}
    fields, _ = parse(
        SessionFields, {**_named(voice, query, query.output_format), **idle}, strict_fields=True
    )
    return fields


def _named(voice: str, given: SpeechBody | Query, output_format: str) -> dict[str, Any]:
    output = _OUTPUT.fullmatch(output_format)
    if output is None:
        raise InvalidRequestError(
            f"output_format is {output_format[:40]!r}, must be mp3, pcm, opus or wav with a rate: "
            f"{DEFAULT_OUTPUT}, pcm_24000",
            param="output_format",
        )
    model = given.model_id
    return {
        "model": None if model is None or model.startswith(_THEIR_MODELS) else model,
        "voice": voice,
        "response_format": output[1],
        "sample_rate": int(output[2]),
        "language": given.language_code,
        "seed": given.seed,
        "text_normalization": given.apply_text_normalization,
    }
