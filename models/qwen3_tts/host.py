"""The host half of Qwen3-TTS: requests to integer rows. No torch."""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from voxserve.errors import InvalidRequestError
from voxserve.models.qwen3_tts import layout
from voxserve.models.qwen3_tts.config import KINDS, Qwen3Config
from voxserve.models.qwen3_tts.limits import (
    DEFAULT_VOICE,
    ENCODE_SECONDS,
    MAX_CHARS,
    MAX_CONTEXT,
    MAX_TOKENS,
    MIN_CLIP_S,
    MIN_STEPS,
    SAMPLING,
    extra_schema,
    ranges,
    spec,
)
from voxserve.models.qwen3_tts.steps import GuardedSteps, frame_cap
from voxserve.models.qwen3_tts.tokens import LiveTokens
from voxserve.plugin import Checkpoint, LiveText, ModelInfo, Voice
from voxserve.requests import Float32Array, Int32Array, Prompt, SpeechRequest
from voxserve.text.bpe import BpeWords, StandInWords, TextTokens, Words
from voxserve.text.clean import clean
from voxserve.text.languages import language_name


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request comes to, text aside.

    before: prompt rows in front of the text. spoken, frames: transcript ids and frames of a clip
    that the speech goes on from; frames is 0 without one. stream: the text comes one id a step.
    """

    before: list[layout.Row]
    spoken: tuple[int, ...]
    frames: int
    stream: bool
    max_frames: int | None
    ignore_eos: bool
    sampling: Float32Array


class Qwen3Host:
    """`HostLogic` of every checkpoint of the family."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = Qwen3Config.read(checkpoint)
        folder = checkpoint.folder
        has_words = folder is not None and (folder / "vocab.json").exists()
        vocabulary = min(config.im_start, config.talker.text_vocabulary)
        words: Words
        if folder is None or (checkpoint.dummy and not has_words):
            words = StandInWords(vocabulary)
        else:
            words = BpeWords(folder)
        self.config = config
        self.tokens = TextTokens(words)
        self._newline = self.tokens.encode("\n")[0]
        self._role = (config.im_start, config.assistant, self._newline)
        self._names = {
            name: i for name, i in config.talker.languages.items() if "dialect" not in name
        }
        self.spec = spec(config)
        self.info = self._info(checkpoint)

    def prompt(self, request: SpeechRequest) -> Prompt:
        plan = self._plan(request, live=False)
        ids = self.tokens.encode(clean(request.text))
        if not ids:
            raise InvalidRequestError("the text is empty", param="input", code="input_empty")
        return self.lay_out(request, plan, [*ids, self.config.text_eos], ended=True)

    def live_text(self, request: SpeechRequest) -> LiveText:
        return Qwen3LiveText(self, request, self._plan(request, live=True))

    def steps(self, slots: int) -> GuardedSteps:
        eos, samples = self.config.talker.control.eos, self.spec.samples_per_frame
        return GuardedSteps(slots, eos, samples, len(SAMPLING) - 1)

    def lay_out(self, request: SpeechRequest, plan: Plan, ids: list[int], *, ended: bool) -> Prompt:
        """ids: text ids known so far, at least one, the end mark last if `ended`."""
        config, count = self.config, len(ids) - ended
        check_length(count)
        if plan.frames:
            laid = layout.continued(
                config, plan.before, plan.spoken, plan.frames, ids, stream=plan.stream
            )
        elif plan.stream:
            laid = layout.streamed(config, plan.before, ids)
        else:
            laid = layout.whole(config, plan.before, ids[:-1])
        room = MAX_CONTEXT - len(laid.rows)
        if room < MIN_STEPS or len(laid.rows) > self.spec.prefill_tokens[-1]:
            count, longest = len(laid.rows), self.spec.prefill_tokens[-1]
            raise InvalidRequestError(
                f"instructions, clip and text come to {count} positions, at most {longest}",
                param="input",
                code="input_too_long",
            )
        auto = plan.max_frames is None and ended
        wanted = plan.max_frames or (frame_cap(count) if ended else room)
        sampling = plan.sampling.copy()
        sampling[-1] = auto
        return Prompt(
            rows=np.array(laid.rows, np.int32),
            inject=np.array(laid.inject, np.int32).reshape(-1, 1),
            text_open=not ended,
            max_steps=min(wanted, room),
            sampling=sampling,
            seed=request.seed,
            input_tokens=count,
            ignore_eos=plan.ignore_eos,
            clip=request.clip,
        )

    def _info(self, checkpoint: Checkpoint) -> ModelInfo:
        config = self.config
        languages = ("auto", *self._names)
        dialects = config.talker.dialects
        about = {name: f"speaks {dialect} for Chinese" for name, dialect in dialects.items()}
        voices = [Voice(name, about.get(name, ""), languages) for name in config.talker.speakers]
        if config.kind == "voice_design":
            voices = [Voice(DEFAULT_VOICE, "as the instructions describe it", languages)]
        return ModelInfo(
            name=checkpoint.name,
            voices=tuple(voices),
            default_voice=voices[0].name if voices else None,
            languages=languages,
            ranges=ranges(config.defaults),
            tasks=(KINDS[config.kind],),
            text_streaming=True,
            cloning=config.clones,
            instructions=config.instructs,
            max_input_chars=MAX_CHARS,
            extra=extra_schema(config.defaults, dummy=checkpoint.dummy),
            licence="Apache-2.0",
            notice="Random weights: it makes noise, not speech." if checkpoint.dummy else "",
        )

    def _plan(self, request: SpeechRequest, *, live: bool) -> Plan:
        config, task = self.config, request.task_type
        if task is not None and task not in self.info.tasks:
            raise InvalidRequestError(
                f"task_type is {task!r}, this model does {self.info.tasks[0]}", param="task_type"
            )
        extra = self._extra(request)
        spoken, frames = self._clip(request)
        stream = self._streams(extra, clone=request.clip is not None, live=live)
        voice = self._voice(request)
        language = self._language(request, voice)
        speaker = None
        if config.clones:
            speaker = (config.text_pad, layout.NONE, layout.SPEAKER)
        elif voice is not None:
            speaker = (config.text_pad, config.talker.speakers[voice], layout.NONE)
        instructions = self._instructions(request)
        check_number("max_new_tokens", request.max_frames, 1, MAX_CONTEXT, whole=True)
        limits = [n for n in (request.max_frames, extra.get("max_frames")) if n is not None]
        return Plan(
            before=layout.prefix(config, self._role, instructions, language, speaker),
            spoken=spoken,
            frames=frames,
            stream=stream,
            max_frames=min(limits) if limits else None,
            ignore_eos=bool(extra.get("ignore_eos", False)),
            sampling=self._sampling(request, extra),
        )

    def _extra(self, request: SpeechRequest) -> Mapping[str, Any]:
        """`extra_params`, each checked against its declaration."""
        known = self.info.extra["properties"]
        for name, value in request.extra.items():
            param = f"extra_params.{name}"
            if name not in known:
                raise unsupported(
                    param, f"is not a parameter of this model, known: {', '.join(known)}"
                )
            kind = known[name]["type"]
            if kind == "boolean":
                if not isinstance(value, bool):
                    raise InvalidRequestError(
                        f"{param} is {value!r}, must be a boolean", param=param
                    )
            else:
                low, high = known[name]["minimum"], known[name]["maximum"]
                check_number(param, value, low, high, whole=kind == "integer")
        return request.extra

    def _streams(self, extra: Mapping[str, Any], *, clone: bool, live: bool) -> bool:
        """Whether the text comes one id a step. By default as the reference does it: for a clone,
        and of course for text that is still to come."""
        chosen = extra.get("non_streaming_mode")
        if live and chosen:
            raise unsupported(
                "extra_params.non_streaming_mode", "text that is still to come can only be streamed"
            )
        return live or (clone if chosen is None else not chosen)

    def _voice(self, request: SpeechRequest) -> str | None:
        """The speaker's key in the configuration, None where a clip or instructions decide."""
        if self.config.clones:
            return None
        names = {voice.name.casefold(): voice.name for voice in self.info.voices}
        wanted = self.info.default_voice if request.voice is None else request.voice
        if wanted is None or wanted.casefold() not in names:
            near = difflib.get_close_matches(str(wanted).casefold(), names, n=1)
            hint = f"; did you mean {names[near[0]]}?" if near else ""
            raise InvalidRequestError(
                f"voice {wanted!r} is unknown, must be one of {', '.join(names.values())}{hint}",
                param="voice",
                code="voice_not_found",
            )
        return None if self.config.kind == "voice_design" else names[wanted.casefold()]

    def _language(self, request: SpeechRequest, voice: str | None) -> int | None:
        """The code id of the language tag. A dialect's speaker speaks the dialect unless another
        language is asked for; "auto" is no detection, it leaves the choice to the model."""
        wanted = "auto" if request.language is None else language_name(request.language)
        if wanted != "auto" and wanted not in self._names:
            known = ", ".join(self.info.languages)
            raise InvalidRequestError(
                f"language is {request.language!r}, must be one of {known}", param="language"
            )
        dialect = self.config.talker.dialects.get(voice or "")
        if dialect is not None and wanted in ("auto", "chinese"):
            return self.config.talker.languages[dialect]
        return None if wanted == "auto" else self._names[wanted]

    def _instructions(self, request: SpeechRequest) -> list[int]:
        if not request.instructions:
            return []
        if not self.config.instructs:
            raise unsupported("instructions", "this model was not trained to follow any")
        ids = self.tokens.encode(f"user\n{request.instructions}")
        return [self.config.im_start, *ids, self.config.im_end, self._newline]

    def _clip(self, request: SpeechRequest) -> tuple[tuple[int, ...], int]:
        """(ids of the clip's transcript, its frames); nothing where only its voice is taken."""
        clip = request.clip
        if not self.config.clones:
            if clip is not None:
                raise unsupported("ref_audio", "this model has its own voices and takes no clip")
            return (), 0
        if clip is None:
            raise InvalidRequestError(
                "this model speaks in the voice of a clip: name ref_audio or an uploaded voice",
                param="ref_audio",
            )
        seconds, longest = len(clip.audio) / self.config.sample_rate_hz, ENCODE_SECONDS[-1]
        if not MIN_CLIP_S <= seconds <= longest:
            code = "ref_audio_too_long" if seconds > longest else "ref_audio_invalid"
            raise InvalidRequestError(
                f"reference clip has {seconds:.2f} s, must have {MIN_CLIP_S} to {longest} s",
                param="ref_audio",
                code=code,
            )
        if request.speaker_only:
            return (), 0
        spoken = self.tokens.encode(f"assistant\n{clean(clip.text or '')}")[2:]
        if not spoken:
            raise InvalidRequestError(
                "ref_text, the words of the clip, is needed; or set x_vector_only_mode",
                param="ref_text",
            )
        return tuple(spoken), math.ceil(len(clip.audio) / self.spec.samples_per_frame)

    def _sampling(self, request: SpeechRequest, extra: Mapping[str, Any]) -> Float32Array:
        values = []
        for name, allowed in self.info.ranges.items():
            given = getattr(request, name)
            check_number(name, given, allowed.low, allowed.high)
            values.append(allowed.default if given is None else given)
        defaults = self.config.defaults
        depth = [
            extra.get(name, getattr(defaults, name))
            for name in ("subtalker_temperature", "subtalker_top_k", "subtalker_top_p")
        ]
        return np.array([*values, MIN_STEPS, *depth, 0.0], np.float32)


class Qwen3LiveText:
    """`LiveText`. Speech that goes on from a clip needs as much text in its prompt as the clip has
    frames, so that many ids are gathered before the first come out."""

    def __init__(self, host: Qwen3Host, request: SpeechRequest, plan: Plan) -> None:
        self._host = host
        self._request = request
        self._plan = plan
        self._tokens = LiveTokens(host.tokens)
        self._count = 0
        self._held: list[int] = []
        self._first = max(plan.frames + 1 - len(plan.spoken), 1)

    def append(self, text: str) -> Int32Array:
        return self._rows(self._tokens.feed(text), ended=False)

    def end(self) -> Int32Array:
        rows = self._rows(self._tokens.end(), ended=True)
        return np.concatenate([rows, np.array([[self._host.config.text_eos]], np.int32)])

    def prompt(self, rows: Int32Array, ended: bool) -> Prompt:
        ids = rows[:, 0].tolist()
        if ended and len(ids) == 1:
            raise InvalidRequestError("the text is empty", param="input", code="input_empty")
        return self._host.lay_out(self._request, self._plan, ids, ended=ended)

    def _rows(self, ids: list[int], *, ended: bool) -> Int32Array:
        self._count += len(ids)
        check_length(self._count)
        self._held += ids
        if not ended and self._count < self._first:
            return np.zeros((0, 1), np.int32)
        ready, self._held = self._held, []
        return np.array(ready, np.int32).reshape(-1, 1)


def check_length(tokens: int) -> None:
    if tokens > MAX_TOKENS:
        raise InvalidRequestError(
            f"text has {tokens} tokens, at most {MAX_TOKENS}", param="input", code="input_too_long"
        )


def check_number(name: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    """Raises InvalidRequestError unless `value` is None or a number from low to high."""
    if value is None:
        return
    kinds = (int,) if whole else (int, float)
    fits = isinstance(value, kinds) and not isinstance(value, bool)
    if not fits or not low <= float(str(value)) <= high:
        kind = "a whole number" if whole else "a number"
        raise InvalidRequestError(
            f"{name} is {value!r}, must be {kind} from {low:g} to {high:g}", param=name
        )


def unsupported(param: str, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param}: {why}", param=param, code="unsupported_parameter")
