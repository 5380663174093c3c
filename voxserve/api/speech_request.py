"""From validated fields to what the model's host logic takes: names resolved, limits checked.

Everything that this version cannot honour is refused here by name; nothing is dropped.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from voxserve.api.extra_params import check_extra_params
from voxserve.api.schemas import MAX_SEED, VoiceFields, VoiceId
from voxserve.api.voice_store import StoredVoice
from voxserve.api.voices import resolve_voice
from voxserve.audio.formats import FORMATS
from voxserve.audio.output import Output, output_for
from voxserve.config import Config
from voxserve.errors import InvalidRequestError, NotFoundError
from voxserve.plugin import HostLogic, ModelInfo
from voxserve.requests import SpeechRequest
from voxserve.text.clean import clean, speakable
from voxserve.text.normalise import normalise

UNSPEAKABLE = "input_unspeakable"
MODEL_ALIASES = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
_CLONING = ("ref_audio", "ref_text", "references", "x_vector_only_mode")
_MOST_COMPOSED = 4
_ENGLISH = ("en", "english", "auto")
_SAMPLING = ("temperature", "top_p", "top_k", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class SpeechPlan:
    """A request that this server can honour.

    request: for the host logic; its text is empty until `with_text`. output: how the audio goes
    out. silent: nothing in the text can be spoken, and silence was asked for.
    chunk_frames: hint for the first chunk. normalise: the text is to be written out by us.
    """

    request: SpeechRequest
    output: Output
    chunk_frames: int | None
    silence_if_unspeakable: bool
    normalise: bool = False
    silent: bool = False

    def with_text(self, text: str, max_chars: int) -> "SpeechPlan":
        """The plan for one text, cleaned and measured. Raises InvalidRequestError."""
        # Cleaning takes a second for some megabytes, and no character composes of more than these.
        check_length(len(text := text.strip()), max_chars, _MOST_COMPOSED * max_chars)
        cleaned = clean(text)
        check_length(len(cleaned), max_chars)
        if not cleaned:
            raise InvalidRequestError(
                "input is empty after trimming", param="input", code="input_empty"
            )
        silent = not speakable(cleaned)
        if silent and not self.silence_if_unspeakable:
            raise unspeakable()
        return replace(self, request=replace(self.request, text=self.said(cleaned)), silent=silent)

    def said(self, text: str) -> str:
        """A whole text as the model is to get it."""
        return normalise(text) if self.normalise else text

    def with_new_seed(self, given: int | None) -> "SpeechPlan":
        return replace(self, request=replace(self.request, seed=_seed(given)))


def resolve(
    fields: VoiceFields,
    host: HostLogic,
    config: Config,
    *,
    format_: str,
    silence: bool,
    uploaded: Sequence[StoredVoice] = (),
) -> SpeechPlan:
    """The plan without its text and without a clip. format_ and silence: what absent fields mean
    here. uploaded: the voices to choose from beside the model's own.

    Raises InvalidRequestError or NotFoundError naming the field.
    """
    _check_model(fields.model, config, host.info)
    _refuse_unsupported(fields, host.info)
    _check_sampling(fields, host.info)
    extra = fields.extra_params or {}
    check_extra_params(extra, host.info.extra)
    wanted = fields.voice.id if isinstance(fields.voice, VoiceId) else fields.voice
    request = SpeechRequest(
        text="",
        voice=resolve_voice(wanted, host.info, config.api.voice_alias, uploaded),
        language=fields.language,
        instructions=fields.instructions or None,
        task_type=fields.task_type,
        seed=_seed(fields.seed),
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k,
        repetition_penalty=fields.repetition_penalty,
        max_frames=fields.max_new_tokens,
        extra=extra,
    )
    _check_normalising(fields)
    on_unspeakable = fields.on_unspeakable or ("silence" if silence else "error")
    return SpeechPlan(
        request=request,
        output=output_for(
            _format(fields.response_format or format_),
            host.spec.sample_rate_hz,
            fields.sample_rate,
            1.0 if fields.speed is None else fields.speed,
        ),
        chunk_frames=fields.initial_codec_chunk_frames,
        silence_if_unspeakable=on_unspeakable == "silence",
        normalise=fields.text_normalization == "on" and not host.info.normalises,
    )


def _seed(given: int | None) -> int:
    return secrets.randbelow(MAX_SEED + 1) if given is None else given


def check_length(chars: int, max_chars: int, limit: int | None = None) -> None:
    """Raises InvalidRequestError above `max_chars`, or above `limit` for text as it came."""
    if chars > (max_chars if limit is None else limit):
        raise InvalidRequestError(
            f"input has {chars} characters, at most {max_chars}",
            param="input",
            code="input_too_long",
        )


def unspeakable() -> InvalidRequestError:
    return InvalidRequestError(
        "input holds no letter, digit or sign that can be spoken",
        param="input",
        code=UNSPEAKABLE,
    )


def model_names(config: Config, info: ModelInfo) -> tuple[str, ...]:
    """The served name first, then the others that are accepted."""
    served = config.served_name or config.model
    return (served, *(name for name in (config.model, info.name) if name != served))


def _check_model(wanted: str | None, config: Config, info: ModelInfo) -> None:
    names = model_names(config, info)
    accepted = names if config.api.strict_model else (*names, *MODEL_ALIASES)
    if wanted is not None and wanted not in accepted:
        raise NotFoundError(
            f"model {wanted[:100]!r} is not served here, there is: {names[0]}",
            param="model",
            code="model_not_found",
        )


def _format(name: str) -> str:
    if name not in FORMATS:
        raise _unsupported("response_format", f"is {name}, this server has: {', '.join(FORMATS)}")
    return name


def _refuse_unsupported(fields: VoiceFields, info: ModelInfo) -> None:
    if fields.instructions and not info.instructions:
        raise _unsupported("instructions", "is given, but the model takes none")
    if fields.text_normalization == "off" and info.normalises:
        raise _unsupported("text_normalization", "is off, but the model reads words alone")
    if fields.timestamp_granularities:
        raise _unsupported("timestamp_granularities", "is given, this server has no aligner")
    for name in _CLONING:
        if getattr(fields, name) and not info.cloning:
            raise _unsupported(name, "is given, but the model clones no voices")
    if fields.task_type is not None and fields.task_type not in info.tasks:
        allowed = ", ".join(info.tasks) or "none"
        raise _unsupported("task_type", f"is {fields.task_type}, the model has: {allowed}")


def _check_normalising(fields: VoiceFields) -> None:
    language = (fields.language or _ENGLISH[0]).casefold().split("-")[0]
    if fields.text_normalization == "on" and language not in _ENGLISH:
        raise _unsupported(
            "text_normalization", f"is on, but there are no rules for {fields.language}"
        )


def _check_sampling(fields: VoiceFields, info: ModelInfo) -> None:
    for name in _SAMPLING:
        value = getattr(fields, name)
        if value is None:
            continue
        allowed = info.ranges.get(name)
        if allowed is None:
            raise _unsupported(name, "is given, but the model has no such parameter")
        if not allowed.low <= value <= allowed.high:
            raise InvalidRequestError(
                f"{name} is {value:g}, must be from {allowed.low:g} to {allowed.high:g}",
                param=name,
            )


def _unsupported(name: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name} {what}", param=name, code="unsupported_parameter")
