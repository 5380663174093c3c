"""What this model declares: shapes, state, ranges and limits. No torch."""

from collections.abc import Mapping
from typing import Any

from voxserve.checkpoint_config import reading
from voxserve.models.higgs_audio_v3.config import HiggsConfig
from voxserve.models.higgs_audio_v3.layout import COLUMNS
from voxserve.plugin import ModelSpec, PagePool, Range, StateTensor
from voxserve.steps import AUTO_LENGTH

MAX_CONTEXT = 2048
"""Positions of one request, prompt and speech: 80 s of speech at 25 frames a second."""
CALM_FRAMES = 10
"""Frames a text token of a calm reading; a text that would not fit so is too long."""
MAX_CHARS = 2000
MIN_CLIP_S = 1
ENCODE_SECONDS = (5, 10, 20, 30)
PREFILL_TOKENS = (32, 64, 128, 256, 512, 1024)
FRAME_BUCKETS = (1, 2, 5, 10, 25)
RAMPS = ((1, 2, 5, 10, 25), (2, 5, 10, 25), (5, 10, 25))
"""The first chunk needs its own frames, the look-ahead and the delay before it can be decoded: 18,
19 or 22 steps with the exact context. A later start would cost more of the time to first audio than
the codec's work is worth."""
POOL = "kv"
PAGE_UNITS = 64
DEFAULT_VOICE = "default"

SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty", "min_steps", AUTO_LENGTH)
"""Columns of `Prompt.sampling`. The model has no repetition penalty and no least length; their
columns hold 1 and 0."""

RANGES: Mapping[str, Range] = {
    "temperature": Range(0.0, 2.0, 0.8),
    "top_k": Range(-1, 1000, 30),
    "top_p": Range(1e-3, 1.0, 0.8),
}
"""Limits of the API's sampling fields, for all codebooks alike. The defaults are those that
sglang-omni chose by word error rate."""


def extra_schema(*, dummy: bool) -> Mapping[str, Any]:
    """JSON schema of `extra_params`."""
    properties: dict[str, Any] = {}
    if dummy:
        properties = {
            "max_frames": {"type": "integer", "minimum": 1, "maximum": MAX_CONTEXT},
            "ignore_eos": {"type": "boolean"},
        }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _positions(prompt_rows: int, max_steps: int) -> int:
    """The last step's codes are never read back, so it adds no position."""
    return prompt_rows + max_steps - 1


@reading("Higgs Audio v3")
def spec(config: HiggsConfig) -> ModelSpec:
    """Shapes and state."""
    left, ahead = config.context
    return ModelSpec(
        sample_rate_hz=config.codec.rate_hz,
        samples_per_frame=config.codec.hop,
        codebooks=config.body.codebooks,
        columns=tuple((book, book) for book in range(config.body.codebooks)),
        frame_buckets=FRAME_BUCKETS,
        ramps=RAMPS,
        prompt_columns=COLUMNS,
        inject_columns=1,
        pad_row=(-1,),
        max_context=MAX_CONTEXT,
        prefill_tokens=PREFILL_TOKENS,
        state=state(config),
        pools=(PagePool(POOL, PAGE_UNITS, _positions),),
        sampling=SAMPLING,
        left_frames=left,
        ahead_frames=ahead,
        clip_rate_hz=config.codec.rate_hz,
        encode_seconds=ENCODE_SECONDS,
    )


def clip_rows(config: HiggsConfig) -> int:
    """Delayed rows of codes of the longest reference clip."""
    return config.codec.clip_frames(ENCODE_SECONDS[-1] * config.codec.rate_hz) + config.body.lag


def state(config: HiggsConfig) -> tuple[StateTensor, ...]:
    """All state. The codec has none; `clip.rows` are a clip's codes, delayed as they are fed."""
    body = config.body
    page = (2, PAGE_UNITS, body.kv_heads, body.head)
    return (
        StateTensor("lm.pages", (-(-MAX_CONTEXT // PAGE_UNITS),), "int64"),
        StateTensor("lm.prompt", (), "int64"),
        StateTensor("lm.codes", (body.codebooks,), "int64"),
        StateTensor("lm.sampling", (len(SAMPLING),), "float32"),
        StateTensor("lm.seed", (), "int64"),
        StateTensor("lm.ignore_eos", (), "bool"),
        *(
            StateTensor(f"lm.kv.{layer}", page, scope="page", pool=POOL)
            for layer in range(body.layers)
        ),
        StateTensor("clip.rows", (clip_rows(config), body.codebooks), "int64", "clip"),
    )
