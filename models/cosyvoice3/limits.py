"""What this model declares: shapes, state, ranges and names; and how a clip is laid on the grid of
the flow's blocks. No torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from voxserve.checkpoint_config import reading
from voxserve.models.cosyvoice3.config import CosyVoiceConfig, Repetition
from voxserve.models.cosyvoice3.layout import COLUMNS
from voxserve.models.cosyvoice3.state import flow_state, vocoder_state
from voxserve.plugin import ModelSpec, PagePool, Range, StateTensor

SAMPLE_RATE_HZ = 24_000
CODE_SAMPLES = 960
MEL_SAMPLES = 480
BLOCK = 25
"""Codes of a block, whose mel frames attend to each other."""
TAIL = 13
"""Codes of the clip in the block in which the speech begins; the other 12 are the first chunk. Not
fewer than the look-ahead, so that no full block of the clip depends on what is said after it."""
AHEAD, LEFT = 3, 2
"""Codes behind and before a block that its mel frames depend on."""
MAX_CONTEXT = 2048
"""Positions of one request: clip, text and speech, 25 codes a second."""
MAX_TOKENS = 120
"""Text tokens: some 36 s of speech, which also fits behind the longest clip."""
MAX_CHARS = 1000
LEAST_CODES, MOST_CODES = 2, 20
"""Of speech for each text token, as in the reference."""
ENCODE_SECONDS = (5, 10, 20, 30)
MIN_CLIP_CODES = BLOCK + TAIL
CLIP_CODES = ENCODE_SECONDS[-1] * 25
PREFILL_TOKENS = (64, 128, 256, 320, 512, 1024)
RAMPS = ((BLOCK - TAIL, BLOCK),)
LM_POOL, FLOW_POOL = "kv", "flow"
PAGE_UNITS = 64

SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty", "min_steps")
PUBLISHED, PENALISED = "published", "penalised"

LANGUAGES = (
    *("auto", "chinese", "english", "japanese", "korean", "german", "spanish", "french"),
    *("italian", "russian"),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """Values that sampling starts from, before what a request names itself."""

    temperature: float
    top_k: float
    top_p: float
    repetition_penalty: float


def rules(published: Repetition) -> Mapping[str, Rule]:
    """`penalised` is what one other server takes instead (docs/adr/0011)."""
    return {
        PUBLISHED: Rule(1.0, published.top_k, published.top_p, 1.0),
        PENALISED: Rule(0.7, 20, 0.8, 1.21),
    }


def ranges(rule: Rule) -> Mapping[str, Range]:
    """Limits of the API's sampling fields."""
    return {
        "temperature": Range(0.0, 2.0, rule.temperature),
        "top_k": Range(-1, 1000, rule.top_k),
        "top_p": Range(1e-3, 1.0, rule.top_p),
        "repetition_penalty": Range(0.5, 2.0, rule.repetition_penalty),
    }


def extra_schema(*, dummy: bool) -> Mapping[str, Any]:
    """JSON schema of `extra_params`."""
    properties: dict[str, Any] = {
        "sampling": {
            "type": "string",
            "enum": [PUBLISHED, PENALISED],
            "default": PUBLISHED,
            "description": "the values that sampling starts from",
        }
    }
    if dummy:
        properties |= {
            "max_frames": {"type": "integer", "minimum": 1, "maximum": MAX_CONTEXT},
            "ignore_eos": {"type": "boolean"},
        }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def clip_codes(samples: int) -> int:
    """Codes of a clip of so many samples at 24 kHz, as far as its mel frames go along with them."""
    listened = -(-samples * 2 // 3)
    frames = listened // 160
    for _ in range(2):  # the speech tokenizer's two convolutions of stride 2
        frames = (frames - 1) // 2 + 1
    return max(min(samples // MEL_SAMPLES // 2, frames), 0)


def clip_blocks(codes: int) -> int:
    """Full blocks that the flow shares between all requests with a clip of so many codes.

    What it sees of the clip are these blocks and TAIL more codes, the last ones of the clip.
    """
    return max(codes - TAIL, 0) // BLOCK


def _clip_frames(samples: int) -> int:
    return clip_blocks(clip_codes(samples)) * BLOCK


def _own_frames(prompt_rows: int, max_steps: int) -> int:
    """Codes in blocks of the request's own, the one with the clip's tail first."""
    return -(-(TAIL + max_steps) // BLOCK) * BLOCK


def _positions(prompt_rows: int, max_steps: int) -> int:
    """The last step's code is never read back, so it adds no position."""
    return prompt_rows + max_steps - 1


def table_blocks() -> int:
    """Blocks of the longest clip and the longest request."""
    return (_clip_frames(CLIP_CODES * CODE_SAMPLES) + _own_frames(1, MAX_CONTEXT)) // BLOCK


@reading("CosyVoice 3")
def spec(config: CosyVoiceConfig) -> ModelSpec:
    return ModelSpec(
        sample_rate_hz=SAMPLE_RATE_HZ,
        samples_per_frame=CODE_SAMPLES,
        codebooks=1,
        columns=((0, 0),),
        frame_buckets=(BLOCK,),
        ramps=RAMPS,
        padded_chunks=True,
        left_frames=LEFT,
        ahead_frames=AHEAD,
        prompt_columns=COLUMNS,
        inject_columns=1,
        pad_row=(0,),
        max_context=MAX_CONTEXT,
        prefill_tokens=PREFILL_TOKENS,
        state=state(config),
        pools=(
            PagePool(LM_POOL, PAGE_UNITS, _positions),
            PagePool(FLOW_POOL, BLOCK, _own_frames, _clip_frames),
        ),
        sampling=SAMPLING,
        clip_rate_hz=SAMPLE_RATE_HZ,
        encode_seconds=ENCODE_SECONDS,
    )


def state(config: CosyVoiceConfig) -> tuple[StateTensor, ...]:
    lm = config.lm
    page = (2, PAGE_UNITS, lm.kv_heads, lm.head)
    return (
        StateTensor("lm.pages", (-(-MAX_CONTEXT // PAGE_UNITS),), "int64"),
        StateTensor("lm.prompt", (), "int64"),
        StateTensor("lm.code", (), "int64"),
        StateTensor("lm.recent", (config.repetition.window,), "int64"),
        StateTensor("lm.said", (lm.speech_vocabulary,), "bool"),
        StateTensor("lm.sampling", (len(SAMPLING),), "float32"),
        StateTensor("lm.seed", (), "int64"),
        StateTensor("lm.ignore_eos", (), "bool"),
        *(
            StateTensor(f"lm.kv.{layer}", page, scope="page", pool=LM_POOL)
            for layer in range(lm.layers)
        ),
        StateTensor("codec.clip", (), "int64"),
        StateTensor("codec.pages", (table_blocks(),), "int64"),
        StateTensor("clip.codes", (CLIP_CODES,), "int64", "clip"),
        StateTensor("clip.count", (), "int64", "clip"),
        StateTensor("clip.mel", (2 * CLIP_CODES, config.flow.mel), "float32", "clip"),
        StateTensor("clip.speaker", (config.flow.mel,), "float32", "clip"),
        *flow_state(config.flow),
        *vocoder_state(config.vocoder),
    )
