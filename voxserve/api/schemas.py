"""The fields that clients send, with their API ranges. What the model allows is checked later."""

import reprlib
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from voxserve.errors import InvalidRequestError

MAX_SEED = 2**63 - 1
MAX_INSTRUCTIONS = 1000
MAX_REF_TEXT = 2000
MAX_ABOUT = 500
MAX_NOTE_NAME, MAX_NOTE = 64, 512
"""Characters of a name and of a text in `metadata`."""

Finite = Field(allow_inf_nan=False)


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds the character NUL")
    return text


Text = Annotated[str, AfterValidator(_without_nul)]
NoteName = Annotated[str, Field(max_length=MAX_NOTE_NAME)]
Note = Annotated[str, Field(max_length=MAX_NOTE)] | int | Annotated[float, Finite] | bool


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


Name = Annotated[str, Field(max_length=256)]


class VoiceId(_Fields):
    id: Name


class Reference(_Fields):
    """The clip in the spelling of other servers."""

    audio_path: str | None = None
    ref_audio: str | None = None
    text: Annotated[Text, Field(max_length=MAX_REF_TEXT)] | None = None


class VoiceFields(_Fields):
    """What a speech request and a WebSocket session have in common."""

    model: Name | None = None
    voice: Name | VoiceId | None = None
    instructions: Annotated[Text, Field(max_length=MAX_INSTRUCTIONS)] | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] | None = None
    sample_rate: Literal[8000, 16000, 22050, 24000, 44100, 48000] | None = None
    speed: Annotated[float, Field(ge=0.25, le=4.0), Finite] | None = None
    language: Annotated[str, Field(max_length=64)] | None = None
    task_type: Literal["CustomVoice", "VoiceDesign", "Base"] | None = None
    ref_audio: str | bytes | None = None
    ref_text: Annotated[Text, Field(max_length=MAX_REF_TEXT)] | None = None
    references: Annotated[list[Reference], Field(max_length=1)] | None = None
    x_vector_only_mode: bool | None = None
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2), Finite] | None = None
    top_p: Annotated[float, Field(gt=0, le=1), Finite] | None = None
    top_k: Annotated[int, Field(ge=-1, le=1000)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.5, le=2), Finite] | None = None
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    text_normalization: Literal["auto", "on", "off"] | None = None
    timestamp_granularities: Annotated[list[Literal["word"]], Field(max_length=1)] | None = None
    on_unspeakable: Literal["error", "silence"] | None = None
    initial_codec_chunk_frames: Annotated[int, Field(ge=1, le=64)] | None = None
    extra_params: dict[str, Any] | None = None
    user: Annotated[str, Field(max_length=256)] | None = None
    metadata: Annotated[dict[NoteName, Note], Field(max_length=16)] | None = None


class SpeechFields(VoiceFields):
    """The body of `POST /v1/audio/speech`."""

    input: str | None = None
    stream: bool | None = None
    stream_format: Literal["audio", "sse"] | None = None


class VoiceUpload(_Fields):
    """The body of `POST /v1/audio/voices`; `audio` is a file of the form, or as `ref_audio`."""

    name: str
    audio: str | bytes
    ref_text: Annotated[Text, Field(max_length=MAX_REF_TEXT)] | None = None
    description: Annotated[Text, Field(max_length=MAX_ABOUT)] | None = None
    consent: Annotated[Text, Field(max_length=MAX_ABOUT)] | None = None


class SessionFields(VoiceFields):
    """A `session.config` message."""

    stream_audio: bool = True
    audio_transport: Literal["binary", "json", "tagged"] = "binary"
    split_granularity: Literal["auto", "none", "sentence", "clause"] = "auto"
    max_ahead_ms: Annotated[int, Field(ge=100, le=600_000)] = 15_000
    idle_timeout_s: Annotated[float, Field(ge=1, le=600), Finite] = 60.0
    max_buffer_delay_ms: Annotated[int, Field(ge=0, le=5000)] = 250
    compat: Literal["sglang"] | None = None


F = TypeVar("F", bound=_Fields)

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 60

_ALIASES = (("speaker", "voice"), ("audio_sample", "audio"), ("file", "audio"))


def parse(
    kind: type[F], data: dict[str, Any], *, strict_fields: bool, from_text: bool = False
) -> tuple[F, list[str]]:
    """The validated fields, and the names of unknown ones, which were left out.

    strict_fields: unknown fields are an error. from_text: values are strings, as in a form.
    Raises InvalidRequestError naming the first bad field, its value and what is allowed.
    """
    for alias, name in _ALIASES:
        if alias in data and name in kind.model_fields and name not in data:
            data[name] = data.pop(alias)
    ignored = [name for name in data if name not in kind.model_fields]
    if ignored and strict_fields:
        raise InvalidRequestError(
            f"unknown field {ignored[0][:100]!r}", param=ignored[0][:100], code="unknown_field"
        )
    known = {name: value for name, value in data.items() if name in kind.model_fields}
    try:
        return kind.model_validate(known, strict=not from_text), ignored
    except ValidationError as error:
        raise explain(error) from error


def explain(error: ValidationError) -> InvalidRequestError:
    """What pydantic found wrong first: the field, its value and what is allowed."""
    first = error.errors(include_url=False, include_context=False)[0]
    place = [str(part) for part in first["loc"] if not _is_union_arm(str(part))]
    name = ".".join(place)[:200]
    if first["type"] == "missing":
        return InvalidRequestError(f"{name} is missing", param=name)
    given = first["input"]
    return InvalidRequestError(
        f"{name} is {shown(given)}: {first['msg']}".encode("utf-8", "backslashreplace").decode(),
        param=name,
    )


def shown(given: object) -> str:
    """A value for a message, short however large it is."""
    value = f"{len(given)} bytes" if isinstance(given, bytes) else _repr.repr(given)
    return value if len(value) <= 60 else value[:57] + "…"


def _is_union_arm(part: str) -> bool:
    """pydantic names the arm of a union that it tried last; clients have no use for it."""
    return part in ("str", "constrained-str", "bytes", "VoiceId") or "[" in part
