"""The host half of Higgs Audio v3: requests to integer rows. No torch."""

import numpy as np

from voxserve.errors import InvalidRequestError
from voxserve.models.higgs_audio_v3 import layout
from voxserve.models.higgs_audio_v3.config import HiggsConfig
from voxserve.models.higgs_audio_v3.limits import (
    CALM_FRAMES,
    DEFAULT_VOICE,
    ENCODE_SECONDS,
    MAX_CHARS,
    MAX_CONTEXT,
    MIN_CLIP_S,
    RANGES,
    SAMPLING,
    extra_schema,
    spec,
)
from voxserve.models.higgs_audio_v3.steps import DelayedSteps, frame_cap
from voxserve.models.higgs_audio_v3.tokens import DummyWords, FileWords, Words, encode
from voxserve.plugin import Checkpoint, LiveText, ModelInfo, Voice
from voxserve.requests import Float32Array, Prompt, SpeechRequest
from voxserve.text.clean import clean

TASKS = ("Base",)
LANGUAGE = "auto"
LICENCE = "Boson Higgs TTS 3 Research and Non-Commercial License"
NOTICE = (
    f"The weights are under the {LICENCE}: research and non-commercial use alone; hosting them for "
    "others or in production needs a licence of Boson AI. Clone a voice only with its owner's "
    "consent."
)
DUMMY_NOTICE = "Random weights: it makes noise, not speech."
NO_PENALTY, MIN_STEPS = 1.0, 0.0


class HiggsHost:
    """`HostLogic`."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.config = config = HiggsConfig.read(checkpoint)
        folder = checkpoint.folder
        has_words = folder is not None and (folder / "tokenizer.json").exists()
        self.words: Words
        if folder is None or (checkpoint.dummy and not has_words):
            self.words = DummyWords(config.body.text_vocabulary)
        else:
            self.words = FileWords(folder)
        self.spec = spec(config)
        self.info = ModelInfo(
            name=checkpoint.name,
            voices=(Voice(DEFAULT_VOICE, "another voice for each seed"),),
            default_voice=DEFAULT_VOICE,
            languages=(LANGUAGE,),
            ranges=RANGES,
            tasks=TASKS,
            cloning=True,
            max_input_chars=MAX_CHARS,
            extra=extra_schema(dummy=checkpoint.dummy),
            licence=LICENCE,
            notice=DUMMY_NOTICE if checkpoint.dummy else NOTICE,
        )

    def prompt(self, request: SpeechRequest) -> Prompt:
        if (request.language or LANGUAGE).casefold() != LANGUAGE:
            raise InvalidRequestError(
                f"language is {request.language!r}, must be {LANGUAGE}: the model takes it from "
                "the text",
                param="language",
            )
        ids = encode(self.words, clean(request.text))
        if not ids:
            raise InvalidRequestError("the text is empty", param="input", code="input_empty")
        clip_rows, spoken = self._clip(request)
        rows = layout.rows(self.words.marks, ids, spoken, clip_rows)
        frames = _most_frames(request)
        room = MAX_CONTEXT - len(rows) - self.config.body.lag
        longest = self.spec.prefill_tokens[-1]
        wanted = CALM_FRAMES * len(ids) if frames is None else 1
        if room < wanted or len(rows) > longest:
            raise InvalidRequestError(
                f"clip and text come to {len(rows)} positions, at most {longest}, and the speech "
                f"to {wanted} more, at most {max(room, 0)}",
                param="input",
                code="input_too_long",
            )
        most = min(frame_cap(len(ids)) if frames is None else frames, room)
        return Prompt(
            rows=np.array(rows, np.int32),
            inject=np.zeros((0, 1), np.int32),
            text_open=False,
            max_steps=most + self.config.body.lag,
            sampling=_sampling(request, auto=frames is None),
            seed=request.seed,
            input_tokens=len(ids),
            ignore_eos=bool(request.extra.get("ignore_eos", False)),
            clip=request.clip,
        )

    def live_text(self, request: SpeechRequest) -> LiveText:
        raise InvalidRequestError(
            "input: this model reads whole texts, send all of it at once",
            param="input",
            code="unsupported_parameter",
        )

    def steps(self, slots: int) -> DelayedSteps:
        body, auto = self.config.body, len(SAMPLING) - 1
        return DelayedSteps(slots, body.codebooks, body.sounds, self.spec.samples_per_frame, auto)

    def _clip(self, request: SpeechRequest) -> tuple[int, list[int]]:
        """(delayed rows of the clip, ids of its transcript); the transcript may be left out."""
        clip, codec = request.clip, self.config.codec
        if clip is None:
            return 0, []
        seconds, longest = len(clip.audio) / codec.rate_hz, ENCODE_SECONDS[-1]
        if not MIN_CLIP_S <= seconds <= longest:
            code = "ref_audio_too_long" if seconds > longest else "ref_audio_invalid"
            raise InvalidRequestError(
                f"reference clip has {seconds:.2f} s, must have {MIN_CLIP_S} to {longest} s",
                param="ref_audio",
                code=code,
            )
        said = "" if request.speaker_only else clean(clip.text or "")
        rows = codec.clip_frames(len(clip.audio)) + self.config.body.lag
        return rows, encode(self.words, said, "ref_text")


def _most_frames(request: SpeechRequest) -> int | None:
    """The client's limit. Raises InvalidRequestError where it is out of range."""
    limits = [n for n in (request.max_frames, request.extra.get("max_frames")) if n is not None]
    for limit in limits:
        if not isinstance(limit, int) or not 1 <= limit <= MAX_CONTEXT:
            raise InvalidRequestError(
                f"max_new_tokens is {limit}, must be from 1 to {MAX_CONTEXT}",
                param="max_new_tokens",
            )
    return min((int(str(limit)) for limit in limits), default=None)


def _sampling(request: SpeechRequest, *, auto: bool) -> Float32Array:
    given = [getattr(request, name) for name in RANGES]
    values = [
        allowed.default if value is None else value
        for value, allowed in zip(given, RANGES.values(), strict=True)
    ]
    return np.array([*values, NO_PENALTY, MIN_STEPS, auto], np.float32)
