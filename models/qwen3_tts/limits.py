"""What this model declares: shapes, state, ranges and names. No torch."""

from collections.abc import Mapping
from typing import Any

from voxserve.checkpoint_config import reading
from voxserve.models.qwen3_tts.config import Defaults, Qwen3Config
from voxserve.models.qwen3_tts.layout import COLUMNS
from voxserve.plugin import ModelSpec, PagePool, Range, StateTensor
from voxserve.steps import AUTO_LENGTH

MAX_CONTEXT = 2048
"""Positions of one request, prompt and speech: 160 s of speech at 12.5 frames a second."""
MAX_TOKENS = 400
"""Text tokens: at a calm 4 to 5 frames each they fill the context."""
MAX_CHARS = 2000
CONTROL_CODES = 1024
"""So many ids at the end of the talker's code vocabulary are no sounds; of these only the end code
may be said."""
MIN_STEPS = 2
"""The end code is forbidden for so many steps, as in the reference."""
MIN_CLIP_S = 1
ENCODE_SECONDS = (5, 10, 20, 30)
PREFILL_TOKENS = (32, 64, 128, 256, 512, 1024)
FRAME_BUCKETS = (1, 2, 4, 10)
RAMPS = ((1, 2, 4, 10), (2, 4, 10), (4, 10), (10,))
POOL = "kv"
PAGE_UNITS = 64
DEFAULT_VOICE = "default"

SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "min_steps",
    "subtalker_temperature",
    "subtalker_top_k",
    "subtalker_top_p",
    AUTO_LENGTH,
)
"""Columns of `Prompt.sampling`; `subtalker` is the reference's name for codebooks 1 to 15."""


def ranges(defaults: Defaults) -> Mapping[str, Range]:
    """Limits of the API's sampling fields, which act on codebook 0."""
    return {
        "temperature": Range(0.0, 2.0, defaults.temperature),
        "top_k": Range(-1, 1000, defaults.top_k),
        "top_p": Range(1e-3, 1.0, defaults.top_p),
        "repetition_penalty": Range(0.5, 2.0, defaults.repetition_penalty),
    }


def extra_schema(defaults: Defaults, *, dummy: bool) -> Mapping[str, Any]:
    """JSON schema of `extra_params`."""
    properties: dict[str, Any] = {
        "non_streaming_mode": {
            "type": "boolean",
            "description": "whole text in the prompt (true) or one token a step (false)",
        },
        "subtalker_temperature": {
            "type": "number",
            "minimum": 0.0,
            "maximum": 2.0,
            "default": defaults.subtalker_temperature,
        },
        "subtalker_top_k": {
            "type": "integer",
            "minimum": -1,
            "maximum": 1000,
            "default": defaults.subtalker_top_k,
        },
        "subtalker_top_p": {
            "type": "number",
            "minimum": 1e-3,
            "maximum": 1.0,
            "default": defaults.subtalker_top_p,
        },
    }
    if dummy:
        properties |= {
            "max_frames": {"type": "integer", "minimum": 1, "maximum": MAX_CONTEXT},
            "ignore_eos": {"type": "boolean"},
        }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _positions(prompt_rows: int, max_steps: int) -> int:
    """The last step's codes are never read back, so it adds no position."""
    return prompt_rows + max_steps - 1


@reading("Qwen3-TTS")
def spec(config: Qwen3Config) -> ModelSpec:
    """Shapes and state; the same for both sizes but for widths."""
    talker, codec = config.talker, config.decoder
    return ModelSpec(
        sample_rate_hz=config.sample_rate_hz,
        samples_per_frame=codec.samples_per_frame,
        codebooks=talker.codebooks,
        columns=tuple((0, book) for book in range(talker.codebooks)),
        frame_buckets=FRAME_BUCKETS,
        ramps=RAMPS,
        prompt_columns=COLUMNS,
        inject_columns=1,
        pad_row=(config.text_pad,),
        max_context=MAX_CONTEXT,
        prefill_tokens=PREFILL_TOKENS,
        state=state(config),
        pools=(PagePool(POOL, PAGE_UNITS, _positions),),
        sampling=SAMPLING,
        clip_rate_hz=config.sample_rate_hz if config.clones else None,
        encode_seconds=ENCODE_SECONDS if config.clones else (),
    )


def clip_frames(config: Qwen3Config) -> int:
    """Frames of the longest reference clip."""
    return -(-ENCODE_SECONDS[-1] * config.sample_rate_hz // config.decoder.samples_per_frame)


def state(config: Qwen3Config) -> tuple[StateTensor, ...]:
    """All state. `codec.*` is where a stream's codec stands; `clip.codec.*` where it stands behind
    a reference clip, from which the speech that goes on from the clip starts."""
    talker, codec = config.talker, config.decoder
    body = talker.body
    page = (2, PAGE_UNITS, body.kv_heads, body.head)
    tensors = [
        StateTensor("lm.pages", (-(-MAX_CONTEXT // PAGE_UNITS),), "int64"),
        StateTensor("lm.prompt", (), "int64"),
        StateTensor("lm.codes", (talker.codebooks,), "int64"),
        StateTensor("lm.said", (talker.codes,), "bool"),
        StateTensor("lm.sampling", (len(SAMPLING),), "float32"),
        StateTensor("lm.seed", (), "int64"),
        StateTensor("lm.ignore_eos", (), "bool"),
        *(
            StateTensor(f"lm.kv.{layer}", page, scope="page", pool=POOL)
            for layer in range(body.layers)
        ),
        StateTensor("codec.conv", (codec.conv_state,)),
        StateTensor("codec.window", codec.window_state),
        StateTensor("codec.seen", (), "int64"),
    ]
    if config.clones:
        tensors += [
            StateTensor("codec.continues", (), "bool"),
            StateTensor("clip.codes", (clip_frames(config), talker.codebooks), "int64", "clip"),
            StateTensor("clip.speaker", (body.hidden,), scope="clip"),
            StateTensor("clip.codec.conv", (codec.conv_state,), scope="clip"),
            StateTensor("clip.codec.window", codec.window_state, scope="clip"),
            StateTensor("clip.codec.seen", (), "int64", "clip"),
        ]
    return tuple(tensors)
