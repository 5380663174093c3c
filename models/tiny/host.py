"""The host half of tiny: requests to integer rows. No torch.

The text is fed as in Qwen3-TTS's streaming layout: the prompt holds a few control rows and the
first byte, each decode step takes one byte more, then the end mark once, then padding. So text may
also arrive while its speech is already being made.
"""

import codecs
import difflib
import re

import numpy as np

from voxserve.errors import InvalidRequestError
from voxserve.models.tiny.config import (
    PAGE_UNITS,
    POOL,
    SAMPLE_RATE_HZ,
    TEXT_BOS,
    TEXT_END,
    TEXT_PAD,
    TinyConfig,
)
from voxserve.plugin import Checkpoint, LiveText, ModelInfo, ModelSpec, PagePool, Range, Voice
from voxserve.requests import Int32Array, Prompt, SpeechRequest
from voxserve.steps import EosSteps

PROMPT_ROWS = 4
TAIL_STEPS = 25
"""Steps that the speech may go on behind its text, before it is cut."""
MIN_STEPS = 13
MIN_CLIP_S, MAX_CLIP_S = 1, 30
_NOT_BYTES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_LANGUAGE_NAMES = {"english": "en", "chinese": "zh"}

RANGES = {
    "temperature": Range(0.0, 2.0, 0.9),
    "top_k": Range(-1, 1000, 50),
    "top_p": Range(0.01, 1.0, 1.0),
    "repetition_penalty": Range(0.5, 2.0, 1.05),
}

FORCED_LENGTH = {
    "type": "object",
    "properties": {
        "max_frames": {"type": "integer", "minimum": 1},
        "ignore_eos": {"type": "boolean"},
    },
    "additionalProperties": False,
}
"""Schema of `extra_params` with random weights: benchmarks choose the length of the speech."""


class TinyHost:
    """`HostLogic` of tiny."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = TinyConfig.read(checkpoint.config)
        self._config = config
        self._dummy = checkpoint.dummy
        self._max_steps = config.max_context - PROMPT_ROWS + 1
        self._max_bytes = self._max_steps - TAIL_STEPS
        self.spec = _spec(config)
        self.info = ModelInfo(
            name="tiny",
            voices=tuple(Voice(name, about) for name, about in config.voices.items()),
            default_voice=next(iter(config.voices)),
            languages=config.languages,
            ranges=RANGES,
            tasks=("CustomVoice", "Base"),
            text_streaming=True,
            cloning=True,
            max_input_chars=self._max_bytes,
            extra=FORCED_LENGTH if checkpoint.dummy else {},
            licence="Apache-2.0",
            notice="Random weights: it makes noise, not speech." if checkpoint.dummy else "",
        )

    def prompt(self, request: SpeechRequest) -> Prompt:
        text = ByteTokens()
        tokens = [*text.feed(request.text), *text.end()]
        if not tokens:
            raise InvalidRequestError("the text is empty", param="input", code="input_empty")
        rows = np.array([*tokens, TEXT_END], np.int32)[:, None]
        return self.make_prompt(request, rows, ended=True)

    def live_text(self, request: SpeechRequest) -> LiveText:
        self.make_prompt(request, np.zeros((1, 1), np.int32), ended=False)
        return TinyLiveText(self, request)

    def steps(self, slots: int) -> EosSteps:
        return EosSteps(slots, self._config.eos, self.spec.samples_per_frame)

    def check_length(self, count: int) -> None:
        if count > self._max_bytes:
            raise InvalidRequestError(
                f"text has {count} bytes of UTF-8, at most {self._max_bytes}",
                param="input",
                code="input_too_long",
            )

    def make_prompt(self, request: SpeechRequest, rows: Int32Array, *, ended: bool) -> Prompt:
        """rows: [n, 1] text ids, n >= 1, the end mark last if `ended`."""
        config = self._config
        self.check_length(len(rows) - ended)
        self._refuse_unsupported(request)
        limit, ignore_eos = self._limits(request)
        natural = max(len(rows) - ended, MIN_STEPS) + TAIL_STEPS if ended else self._max_steps
        speaker = self._speaker(request)
        prefix = [
            (TEXT_BOS, config.code_language(self._language(request))),
            (TEXT_PAD, speaker),
            (TEXT_PAD, config.code_pad),
            (int(rows[0, 0]), config.code_bos),
        ]
        return Prompt(
            rows=np.array(prefix, np.int32),
            inject=rows[1:],
            text_open=not ended,
            max_steps=limit or natural,
            sampling=self._sampling(request),
            seed=request.seed,
            input_tokens=len(rows) - ended,
            ignore_eos=ignore_eos,
            clip=request.clip,
        )

    def _refuse_unsupported(self, request: SpeechRequest) -> None:
        if request.instructions is not None:
            raise _unsupported("instructions", "tiny takes no instructions")
        task = request.task_type
        if task is not None and task not in self.info.tasks:
            raise InvalidRequestError(
                f"task_type is {task!r}, must be one of {', '.join(self.info.tasks)}",
                param="task_type",
            )
        if task == "Base" and request.clip is None:
            raise InvalidRequestError("task_type Base needs a reference clip", param="ref_audio")
        if task == "CustomVoice" and request.clip is not None:
            raise _unsupported("ref_audio", "task_type CustomVoice takes no reference clip")

    def _speaker(self, request: SpeechRequest) -> int:
        """The code id of the speaker row. A clip decides over a voice."""
        if request.clip is not None:
            seconds = len(request.clip.audio) / SAMPLE_RATE_HZ
            if not MIN_CLIP_S <= seconds <= MAX_CLIP_S:
                code = "ref_audio_too_long" if seconds > MAX_CLIP_S else "ref_audio_invalid"
                raise InvalidRequestError(
                    f"reference clip has {seconds:.2f} s, must have {MIN_CLIP_S} to {MAX_CLIP_S} s",
                    param="ref_audio",
                    code=code,
                )
            return self._config.code_clip
        wanted = self.info.default_voice if request.voice is None else request.voice
        names = {voice.name.casefold(): voice.name for voice in self.info.voices}
        if wanted is None or wanted.casefold() not in names:
            near = difflib.get_close_matches(str(wanted).casefold(), names, n=1)
            hint = f"; did you mean {names[near[0]]}?" if near else ""
            raise InvalidRequestError(
                f"voice {wanted!r} is unknown, must be one of {', '.join(names.values())}{hint}",
                param="voice",
                code="voice_not_found",
            )
        return self._config.code_voice(names[wanted.casefold()])

    def _language(self, request: SpeechRequest) -> str:
        if request.language is None:
            return "auto"
        lower = request.language.casefold()
        language = _LANGUAGE_NAMES.get(lower, lower.split("-")[0])
        if language not in self._config.languages:
            raise InvalidRequestError(
                f"language is {request.language!r}, must be one of "
                f"{', '.join(self._config.languages)}",
                param="language",
            )
        return language

    def _limits(self, request: SpeechRequest) -> tuple[int | None, bool]:
        """(wanted number of steps at most, whether the end code is masked)."""
        unknown = set(request.extra) - set(self.info.extra.get("properties", ()))
        if unknown:
            raise _unsupported(f"extra_params.{min(unknown)}", "is not a parameter of this model")
        ignore_eos = request.extra.get("ignore_eos", False)
        if not isinstance(ignore_eos, bool):
            raise InvalidRequestError(
                f"extra_params.ignore_eos is {ignore_eos!r}, must be true or false",
                param="extra_params.ignore_eos",
            )
        limits = {
            "max_new_tokens": request.max_frames,
            "extra_params.max_frames": request.extra.get("max_frames"),
        }
        for name, limit in limits.items():
            whole = isinstance(limit, int) and not isinstance(limit, bool)
            if limit is not None and not (whole and 1 <= int(str(limit)) <= self._max_steps):
                raise InvalidRequestError(
                    f"{name} is {limit!r}, must be a whole number from 1 to {self._max_steps}",
                    param=name,
                )
        given = [int(str(limit)) for limit in limits.values() if limit is not None]
        return (min(given) if given else None), ignore_eos

    def _sampling(self, request: SpeechRequest) -> np.ndarray:
        values = []
        for name, allowed in RANGES.items():
            given = getattr(request, name)
            if given is not None and not allowed.low <= given <= allowed.high:
                raise InvalidRequestError(
                    f"{name} is {given}, must be from {allowed.low} to {allowed.high}", param=name
                )
            values.append(allowed.default if given is None else given)
        return np.array([*values, MIN_STEPS], np.float32)


class TinyLiveText:
    """`LiveText` of tiny: bytes are final as soon as their character is complete."""

    def __init__(self, host: TinyHost, request: SpeechRequest) -> None:
        self._host = host
        self._request = request
        self._tokens = ByteTokens()
        self._count = 0

    def append(self, text: str) -> Int32Array:
        return self._rows(self._tokens.feed(text))

    def end(self) -> Int32Array:
        rows = self._rows(self._tokens.end())
        return np.concatenate([rows, np.array([[TEXT_END]], np.int32)])

    def prompt(self, rows: Int32Array, ended: bool) -> Prompt:
        if ended and len(rows) == 1:
            raise InvalidRequestError("the text is empty", param="input", code="input_empty")
        return self._host.make_prompt(self._request, rows, ended=ended)

    def _rows(self, tokens: bytes) -> Int32Array:
        self._count += len(tokens)
        self._host.check_length(self._count)
        return np.frombuffer(tokens, np.uint8).astype(np.int32)[:, None]


class ByteTokens:
    """Text to UTF-8 bytes, cut anywhere.

    A string may end inside a character: after the first half of a UTF-16 pair, which is held back
    until the second comes, or inside its bytes when these are handed over one by one as Python's
    `surrogateescape` has them. A half without its other half becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._units = codecs.getincrementaldecoder("utf-16-le")("surrogatepass")

    def feed(self, text: str) -> bytes:
        """Bytes that later text can no longer change."""
        return self._bytes(self._units.decode(text.encode("utf-16-le", "surrogatepass")))

    def end(self) -> bytes:
        """What was held back."""
        return self._bytes(self._units.decode(b"", True))

    @staticmethod
    def _bytes(text: str) -> bytes:
        return _NOT_BYTES.sub("\ufffd", text).encode("utf-8", "surrogateescape")


def _spec(config: TinyConfig) -> ModelSpec:
    return ModelSpec(
        sample_rate_hz=SAMPLE_RATE_HZ,
        samples_per_frame=config.codec.samples_per_frame,
        codebooks=config.codebooks,
        columns=tuple((0, book) for book in range(config.codebooks)),
        frame_buckets=(1, 2, 4, 10),
        ramps=((1, 2, 4, 10), (2, 4, 10), (4, 10), (10,)),
        prompt_columns=2,
        inject_columns=1,
        pad_row=(TEXT_PAD,),
        max_context=config.max_context,
        prefill_tokens=(8,),
        state=config.state(),
        pools=(PagePool(POOL, PAGE_UNITS, _positions),),
        clip_rate_hz=SAMPLE_RATE_HZ,
        encode_seconds=(5, 15, 30),
    )


def _positions(prompt_rows: int, max_steps: int) -> int:
    """The last step computes its frame from the positions before it and adds none."""
    return prompt_rows + max_steps - 1


def _unsupported(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param}: {message}", param=param, code="unsupported_parameter")
