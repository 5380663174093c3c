"""A validated speech request, and the prompt that a model's host logic makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Float32Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ReferenceClip:
    """A decoded reference clip.

    audio: [samples] float32 in [-1, 1], mono, at the model's `clip_rate_hz`.
    key: hash of the content; equal clips share one encoder run and one cached prefix.
    """

    key: str
    audio: Float32Array
    text: str | None = None


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """What a client asked for, validated against the API's ranges but not yet the model's.

    `None` means that the client left the field out, so the model's own default applies.
    `extra` holds `extra_params`, already checked against the model's declared schema.
    """

    text: str
    voice: str | None = None
    language: str | None = None
    instructions: str | None = None
    task_type: str | None = None
    clip: ReferenceClip | None = None
    speaker_only: bool = False
    seed: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None
    max_frames: int | None = None
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prompt:
    """All that the engine needs to run one request; integers and small arrays only.

    rows: [T, prompt_columns] int32, one prefill position a row; the columns are the model's own
        (text id, code id, index into the clip's features, …).
    inject: [n, inject_columns] int32, the text rows known so far that decode steps 1, 2, … consume
        one each (step 0 is the prefill). Steps beyond `n` get the model's padding row.
    text_open: more rows will arrive; a step whose row is not there yet waits.
    max_steps: most LM steps, prefill included; the model's runaway guard may end it earlier.
    sampling: [len(ModelInfo.sampling)] float32, resolved values in that order.
    seed: noise depends on (seed, step, codebook) alone.
    input_tokens: text tokens, for usage accounting.
    """

    rows: Int32Array
    inject: Int32Array
    text_open: bool
    max_steps: int
    sampling: Float32Array
    seed: int
    input_tokens: int
    ignore_eos: bool = False
    clip: ReferenceClip | None = None
