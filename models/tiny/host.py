"""The host half of tiny: requests to integer rows. No torch.

The text is fed as in Qwen3-TTS's streaming layout: the prompt holds a few control rows and the
first byte, each decode step takes one byte more, then the end mark once, then padding. So text may
also arrive while its speech is already being made.
"""

import difflib
from collections.abc import Sequence

import numpy as np

from voxserve.errors import InvalidRequestError
from voxserve.models.tiny.config import SAMPLE_RATE_HZ, TEXT_BOS, TEXT_END, TEXT_PAD, TinyConfig
from voxserve.models.tiny.spec import RANGES, forced_length, spec
from voxserve.plugin import Checkpoint, LiveText, ModelInfo, Voice
from voxserve.requests import Float32Array, Int32Array, Prompt, SpeechRequest
from voxserve.steps import EosSteps
from voxserve.text.clean import LiveCleaner, clean

PROMPT_ROWS = 4
TAIL_STEPS = 25
"""Steps that the speech may go on behind its text, before it is cut."""
MIN_STEPS = 13
MIN_CLIP_S, MAX_CLIP_S = 1, 30
_LANGUAGE_NAMES = {"english": "en", "chinese": "zh"}


class TinyHost:
    """`HostLogic` of tiny."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = TinyConfig.read(checkpoint.config)
        self._config = config
        self._max_steps = config.max_context - PROMPT_ROWS + 1
        self._max_bytes = self._max_steps - TAIL_STEPS
        self.spec = spec(config)
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
            extra=forced_length(self._max_steps) if checkpoint.dummy else {},
            licence="Apache-2.0",
            notice="Random weights: it makes noise, not speech." if checkpoint.dummy else "",
        )

    def prompt(self, request: SpeechRequest) -> Prompt:
        tokens = clean(request.text).encode()
        return self.make_prompt(request, _rows([*tokens, TEXT_END]), ended=True)

    def live_text(self, request: SpeechRequest) -> LiveText:
        self.make_prompt(request, _rows([TEXT_PAD]), ended=False)
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
        tokens = len(rows) - ended
        if not tokens:
            raise InvalidRequestError("the text is empty", param="input", code="input_empty")
        self.check_length(tokens)
        self._check_task(request)
        longest = max(tokens, MIN_STEPS) + TAIL_STEPS if ended else self._max_steps
        prefix = [
            (TEXT_BOS, config.code_language(self._language(request))),
            (TEXT_PAD, self._speaker(request)),
            (TEXT_PAD, config.code_pad),
            (int(rows[0, 0]), config.code_bos),
        ]
        return Prompt(
            rows=np.array(prefix, np.int32),
            inject=rows[1:],
            text_open=not ended,
            max_steps=self._wanted_steps(request) or longest,
            sampling=_sampling(request),
            seed=request.seed,
            input_tokens=tokens,
            ignore_eos=bool(request.extra.get("ignore_eos", False)),
            clip=request.clip,
        )

    def _check_task(self, request: SpeechRequest) -> None:
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

    def _wanted_steps(self, request: SpeechRequest) -> int | None:
        """The shorter of the lengths that the request asks for."""
        forced = request.extra.get("max_frames")
        assert forced is None or isinstance(forced, int), "checked against the schema"
        steps = min((n for n in (request.max_frames, forced) if n is not None), default=None)
        if steps is not None and not 1 <= steps <= self._max_steps:
            raise InvalidRequestError(
                f"max_new_tokens is {steps}, must be from 1 to {self._max_steps}",
                param="max_new_tokens",
            )
        return steps


class TinyLiveText:
    """`LiveText` of tiny: the bytes of a character are final as soon as it is."""

    def __init__(self, host: TinyHost, request: SpeechRequest) -> None:
        self._host = host
        self._request = request
        self._cleaner = LiveCleaner()
        self._count = 0

    def append(self, text: str) -> Int32Array:
        return self._settled(self._cleaner.feed(text))

    def end(self) -> Int32Array:
        return np.concatenate([self._settled(self._cleaner.end()), _rows([TEXT_END])])

    def prompt(self, rows: Int32Array, ended: bool) -> Prompt:
        return self._host.make_prompt(self._request, rows, ended=ended)

    def _settled(self, text: str) -> Int32Array:
        tokens = text.encode()
        self._count += len(tokens)
        self._host.check_length(self._count)
        return _rows(list(tokens))


def _rows(tokens: Sequence[int]) -> Int32Array:
    return np.array(list(tokens), np.int32).reshape(-1, 1)


def _sampling(request: SpeechRequest) -> Float32Array:
    values: list[float] = []
    for name, allowed in RANGES.items():
        given = getattr(request, name)
        if given is not None and not allowed.low <= given <= allowed.high:
            raise InvalidRequestError(
                f"{name} is {given}, must be from {allowed.low} to {allowed.high}", param=name
            )
        values.append(allowed.default if given is None else given)
    return np.array([*values, MIN_STEPS], np.float32)


def _unsupported(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param}: {message}", param=param, code="unsupported_parameter")
