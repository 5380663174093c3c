"""The host half of CosyVoice 3: requests to integer rows. No torch."""

from dataclasses import dataclass

import numpy as np

from voxserve.errors import InvalidRequestError
from voxserve.models.cosyvoice3 import layout
from voxserve.models.cosyvoice3.config import CosyVoiceConfig
from voxserve.models.cosyvoice3.limits import (
    BLOCK,
    ENCODE_SECONDS,
    LANGUAGES,
    LEAST_CODES,
    MAX_CHARS,
    MAX_CONTEXT,
    MAX_TOKENS,
    MIN_CLIP_CODES,
    MOST_CODES,
    PUBLISHED,
    SAMPLE_RATE_HZ,
    clip_codes,
    extra_schema,
    ranges,
    rules,
    spec,
)
from voxserve.models.cosyvoice3.state import emitted_samples
from voxserve.models.cosyvoice3.steps import SilenceSteps
from voxserve.models.cosyvoice3.tokens import load_tokens
from voxserve.plugin import Checkpoint, LiveText, ModelInfo
from voxserve.requests import Float32Array, Prompt, ReferenceClip, SpeechRequest
from voxserve.text.clean import clean
from voxserve.text.languages import language_name

ASSISTANT = "You are a helpful assistant."
MEL_PER_CODE = 2


@dataclass(frozen=True, slots=True)
class Guide:
    """What stands before the text: its ids, and the clip's codes that the speech continues."""

    text: list[int]
    codes: int


class CosyVoiceHost:
    """`HostLogic`."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.config = CosyVoiceConfig.read(checkpoint)
        self.tokens = load_tokens(checkpoint, self.config.lm.text_vocabulary)
        self.rules = rules(self.config.repetition)
        self.spec = spec(self.config)
        self.info = ModelInfo(
            name=checkpoint.name,
            voices=(),
            default_voice=None,
            languages=LANGUAGES,
            ranges=ranges(self.rules[PUBLISHED]),
            tasks=("Base",),
            cloning=True,
            instructions=True,
            max_input_chars=MAX_CHARS,
            extra=extra_schema(dummy=checkpoint.dummy),
            licence="Apache-2.0",
            notice="Random weights: it makes noise, not speech." if checkpoint.dummy else "",
        )

    def prompt(self, request: SpeechRequest) -> Prompt:
        _check_language(request)
        clip = self._clip(request)
        text = self.tokens.encode(clean(request.text))
        if not text:
            raise InvalidRequestError("the text is empty", param="input", code="input_empty")
        if len(text) > MAX_TOKENS:
            raise InvalidRequestError(
                f"text has {len(text)} tokens, at most {MAX_TOKENS}",
                param="input",
                code="input_too_long",
            )
        guide = self._guide(request, clip)
        rows = layout.prompt(self.config.lm, [*guide.text, *text], guide.codes)
        ignore_eos = bool(request.extra.get("ignore_eos", False))
        return Prompt(
            rows=np.array(rows, np.int32),
            inject=np.zeros((0, 1), np.int32),
            text_open=False,
            max_steps=self._max_steps(request, len(text), len(rows)),
            sampling=self._sampling(request, len(text)),
            seed=request.seed,
            input_tokens=len(text),
            ignore_eos=ignore_eos,
            clip=clip,
        )

    def live_text(self, request: SpeechRequest) -> LiveText:
        raise InvalidRequestError(
            "this model takes whole sentences, not text that is still to come",
            param="input",
            code="unsupported_parameter",
        )

    def steps(self, slots: int) -> SilenceSteps:
        vocoder = self.config.vocoder

        def samples(first: int, frames: int, last: bool) -> int:
            return emitted_samples(vocoder, MEL_PER_CODE * first, MEL_PER_CODE * frames, last)

        return SilenceSteps(slots, self.config.lm.codes, MAX_CONTEXT, samples)

    def _clip(self, request: SpeechRequest) -> ReferenceClip:
        clip = request.clip
        if clip is None:
            raise InvalidRequestError(
                "this model speaks in the voice of a clip: name ref_audio or an uploaded voice",
                param="ref_audio",
            )
        samples = len(clip.audio)
        seconds, longest = samples / SAMPLE_RATE_HZ, ENCODE_SECONDS[-1]
        if seconds > longest or clip_codes(samples) < MIN_CLIP_CODES:
            code = "ref_audio_too_long" if seconds > longest else "ref_audio_invalid"
            least = MIN_CLIP_CODES / BLOCK
            raise InvalidRequestError(
                f"reference clip has {seconds:.2f} s, must have {least:g} to {longest} s",
                param="ref_audio",
                code=code,
            )
        return clip

    def _guide(self, request: SpeechRequest, clip: ReferenceClip) -> Guide:
        """Instructions take the place of the clip's own words; without either only the voice is
        taken from the clip."""
        said = "" if request.speaker_only else clean(clip.text or "")
        instruction = clean(request.instructions or "")
        head = f"{ASSISTANT} {instruction}" if instruction else ASSISTANT
        text = [*self.tokens.encode(head), self.tokens.end_of_prompt]
        if instruction or not said:
            return Guide(text, 0)
        return Guide([*text, *self.tokens.encode(said)], clip_codes(len(clip.audio)))

    def _max_steps(self, request: SpeechRequest, tokens: int, rows: int) -> int:
        longest, room = self.spec.prefill_tokens[-1], MAX_CONTEXT - rows + 1
        if rows > longest or room < tokens * LEAST_CODES:
            raise InvalidRequestError(
                f"instructions, clip and text come to {rows} positions, at most {longest}",
                param="input",
                code="input_too_long",
            )
        given = request.max_frames
        if given is not None and not 1 <= given <= MAX_CONTEXT:
            raise InvalidRequestError(
                f"max_new_tokens is {given}, must be 1 to {MAX_CONTEXT}", param="max_new_tokens"
            )
        wanted = [given, request.extra.get("max_frames")]
        limits = [int(str(frames)) for frames in wanted if frames is not None]
        return min([*limits, room] if limits else [MOST_CODES * tokens, room])

    def _sampling(self, request: SpeechRequest, tokens: int) -> Float32Array:
        rule = self.rules[str(request.extra.get("sampling", PUBLISHED))]
        values = []
        for name, allowed in self.info.ranges.items():
            given = getattr(request, name)
            value = getattr(rule, name) if given is None else given
            if not allowed.low <= value <= allowed.high:
                raise InvalidRequestError(
                    f"{name} is {given}, must be {allowed.low:g} to {allowed.high:g}", param=name
                )
            values.append(float(value))
        return np.array([*values, LEAST_CODES * tokens], np.float32)


def _check_language(request: SpeechRequest) -> None:
    """The model hears the language from the text; one that it does not speak is refused."""
    if request.language is not None and language_name(request.language) not in LANGUAGES:
        raise InvalidRequestError(
            f"language is {request.language!r}, must be one of {', '.join(LANGUAGES)}",
            param="language",
        )
