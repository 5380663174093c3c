"""The host half of mini: text to blocks of phonemes. No torch."""

import difflib
import lzma
import re
from collections.abc import Iterator

import numpy as np

from voxserve.errors import CheckpointError, InvalidRequestError
from voxserve.models.mini.config import BLOCK, EDGE, RANGES, MiniConfig
from voxserve.models.mini.reading import Reader
from voxserve.plugin import Checkpoint, LiveText, ModelInfo, Voice
from voxserve.requests import Float32Array, Int32Array, Prompt, SpeechRequest
from voxserve.steps import EosSteps
from voxserve.text.clean import clean

NOTHING = -1
"""A place of a block without a phoneme."""
NO_PENALTY, MIN_STEPS = 1.0, 0
MAX_CHARS = 4096
_ROOM = BLOCK - 2
_SENTENCE = re.compile(r"(?<=[.!?…]) ")
_CLAUSE = re.compile(r"(?<=[,;:—]) ")
_LANGUAGES = {"en": "en", "english": "en", "auto": "en"}


class MiniHost:
    """`HostLogic` of mini."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = MiniConfig.read(checkpoint.config)
        if checkpoint.folder is None:
            raise CheckpointError(f"checkpoint {checkpoint.name} has no folder with a lexicon")
        try:
            self._reader = Reader(checkpoint.folder)
        except (OSError, ValueError, lzma.LZMAError) as error:
            raise CheckpointError(f"lexicon of {checkpoint.folder}: {error}") from error
        self._config = config
        self.spec = config.spec()
        self.info = ModelInfo(
            name="mini",
            voices=(Voice(config.voice, "American English, female", ("en",)),),
            default_voice=config.voice,
            languages=("en",),
            ranges=RANGES,
            normalises=True,
            max_input_chars=MAX_CHARS,
            licence="Apache-2.0",
            notice="Synthetic voice, distilled from hibari-tts; see MODEL_CARD.md and NOTICE.",
        )

    def prompt(self, request: SpeechRequest) -> Prompt:
        self._check(request)
        config = self._config
        said = self._reader.read(clean(request.text))
        ids = [[config.phonemes[c] for c in part if c in config.phonemes] for part in blocks(said)]
        ids = [block for block in ids if block]
        if not re.search(r"\w", said):
            raise InvalidRequestError(
                "the text has nothing that mini can speak",
                param="input",
                code="input_unspeakable",
            )
        rows = _rows(ids)
        spoken = sum(len(block) + 2 for block in ids)
        if len(rows) > config.max_phonemes:
            raise InvalidRequestError(
                f"text has {len(rows)} phonemes, at most {config.max_phonemes}",
                param="input",
                code="input_too_long",
            )
        longest = config.max_steps(spoken)
        wanted = request.max_frames
        if wanted is not None and wanted < 1:
            raise InvalidRequestError(
                f"max_new_tokens is {wanted}, must be at least 1", param="max_new_tokens"
            )
        return Prompt(
            rows=rows,
            inject=np.zeros((0, 1), np.int32),
            text_open=False,
            max_steps=longest if wanted is None else min(longest, wanted + config.lag),
            sampling=_sampling(request),
            seed=request.seed,
            input_tokens=spoken,
        )

    def live_text(self, request: SpeechRequest) -> LiveText:
        raise _unsupported("input", "mini reads whole sentences; send the text at once")

    def steps(self, slots: int) -> EosSteps:
        config = self._config
        return EosSteps(slots, config.none, self.spec.samples_per_frame, lag=config.lag)

    def _check(self, request: SpeechRequest) -> None:
        if request.instructions is not None:
            raise _unsupported("instructions", "mini takes no instructions")
        if request.clip is not None:
            raise _unsupported("ref_audio", "mini has one voice and clones none")
        if request.task_type is not None:
            raise _unsupported("task_type", "mini has one task")
        language = (request.language or "en").casefold()
        if language.split("-")[0] not in _LANGUAGES:
            raise InvalidRequestError(
                f"language is {request.language!r}, must be en", param="language"
            )
        name = self._config.voice
        if request.voice is not None and request.voice.casefold() != name:
            near = difflib.get_close_matches(request.voice.casefold(), [name], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidRequestError(
                f"voice {request.voice!r} is unknown, must be {name}{hint}",
                param="voice",
                code="voice_not_found",
            )


def blocks(phonemes: str) -> Iterator[str]:
    """Pieces of at most BLOCK - 2 symbols, cut between sentences, else clauses, else words."""
    held = ""
    for piece in _pieces(phonemes, (_SENTENCE, _CLAUSE, re.compile(" "))):
        if held and len(held) + 1 + len(piece) > _ROOM:
            yield held
            held = piece
        else:
            held = f"{held} {piece}" if held else piece
    if held:
        yield held


def _pieces(text: str, cuts: tuple[re.Pattern[str], ...]) -> Iterator[str]:
    for piece in cuts[0].split(text):
        if len(piece) <= _ROOM:
            yield piece
        elif len(cuts) > 1:
            yield from _pieces(piece, cuts[1:])
        else:
            yield from (piece[at : at + _ROOM] for at in range(0, len(piece), _ROOM))


def _rows(ids: list[list[int]]) -> Int32Array:
    """[T, 1] int32: one block as it is; several in BLOCK places each, the rest of them NOTHING."""
    framed = [[EDGE, *block, EDGE] for block in ids]
    if len(framed) > 1:
        framed = [block + [NOTHING] * (BLOCK - len(block)) for block in framed]
    return np.array([i for block in framed for i in block], np.int32).reshape(-1, 1)


def _sampling(request: SpeechRequest) -> Float32Array:
    values: list[float] = []
    for name, allowed in RANGES.items():
        given = getattr(request, name)
        if given is not None and not allowed.low <= given <= allowed.high:
            raise InvalidRequestError(
                f"{name} is {given}, must be from {allowed.low} to {allowed.high}", param=name
            )
        values.append(allowed.default if given is None else given)
    if request.repetition_penalty is not None:
        raise _unsupported("repetition_penalty", "mini cannot loop and has no such penalty")
    return np.array([*values, NO_PENALTY, MIN_STEPS], np.float32)


def _unsupported(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param}: {message}", param=param, code="unsupported_parameter")
