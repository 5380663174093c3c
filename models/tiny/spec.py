"""What tiny declares: shapes, buckets, sampling ranges and extra parameters. No torch."""

from typing import Any

from voxserve.checkpoint_config import reading
from voxserve.models.tiny.config import PAGE_UNITS, POOL, SAMPLE_RATE_HZ, TEXT_PAD, TinyConfig
from voxserve.plugin import ModelSpec, PagePool, Range

RANGES = {
    "temperature": Range(0.0, 2.0, 0.9),
    "top_k": Range(-1, 1000, 50),
    "top_p": Range(0.01, 1.0, 1.0),
    "repetition_penalty": Range(0.5, 2.0, 1.05),
}


@reading("tiny")
def spec(config: TinyConfig) -> ModelSpec:
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


def forced_length(max_steps: int) -> dict[str, Any]:
    """Schema of `extra_params` with random weights: benchmarks choose the length of the speech."""
    return {
        "type": "object",
        "properties": {
            "max_frames": {"type": "integer", "minimum": 1, "maximum": max_steps},
            "ignore_eos": {"type": "boolean"},
        },
        "additionalProperties": False,
    }
