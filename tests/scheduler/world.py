"""What the scheduler's tests share: a small shape, a policy, and a driver by hand."""

from typing import Any

import numpy as np

from voxserve.config import PolicyConfig
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.estimates import Bucket, Estimates
from voxserve.scheduler.launches import Arrival, Done, Lane, Launch, Outcome, Stage
from voxserve.scheduler.policy import Policy, Shape

FRAME_SAMPLES = 1920
RATE_HZ = 24_000
FRAME_S = FRAME_SAMPLES / RATE_HZ

SEED: dict[Bucket, float] = {
    (Lane.LM, Stage.DECODE, 1, 0): 0.010,
    (Lane.LM, Stage.PREFILL, 1, 32): 0.004,
    (Lane.BACKGROUND, Stage.CODEC, 16, 10): 0.006,
    (Lane.URGENT, Stage.CODEC, 8, 10): 0.002,
}


def policy(**changed: Any) -> Policy:
    """The defaults of the configuration, some of them changed."""
    return PolicyConfig(**changed).policy()


def shape(**changed: Any) -> Shape:
    fields: dict[str, Any] = {
        "slots": 4,
        "pages": (16,),
        "frame_s": FRAME_S,
        "sample_rate_hz": RATE_HZ,
        "frame_buckets": (1, 2, 4, 10),
        "ramps": ((1, 2, 4, 10), (4, 10), (10,)),
        "ahead_frames": 0,
        "prefill_tokens": (32, 64, 128),
        "decode_rows": (1, 2, 4, 8, 16, 32, 64, 128, 256),
        "prefill_rows": (1, 2, 4, 8),
        "codec_rows": (1, 2, 4, 8, 16),
        "encode_seconds": (4, 16),
        "clips": 4,
    }
    return Shape(**(fields | changed))


def arrival(request: int, at: float = 0.0, **changed: Any) -> Arrival:
    fields: dict[str, Any] = {
        "ttfa_s": 0.2,
        "prompt_rows": 10,
        "max_steps": 40,
        "pages": (2,),
    }
    return Arrival(request, at, **(fields | changed))


def scheduler(*, estimates: dict[Bucket, float] | None = None, **changed: Any) -> Scheduler:
    """A scheduler; keywords of `Shape` and `Policy` alike."""
    of_policy = {k: v for k, v in changed.items() if k in PolicyConfig.model_fields}
    of_shape = {k: v for k, v in changed.items() if k not in of_policy}
    seed = SEED if estimates is None else estimates
    return Scheduler(shape(**of_shape), policy(**of_policy), Estimates(seed))


def run(
    scheduler: Scheduler,
    launch: Launch,
    now: float,
    *,
    length: int = 10_000,
    max_steps: int = 40,
    failed: tuple[int, ...] = (),
) -> Outcome:
    """Finish a launch whose requests all speak `length` frames. failed: rows that fail."""
    n = len(launch.requests)
    bad = np.isin(np.arange(n), failed) if failed else None
    if launch.steps is not None:
        stop = launch.steps >= length
        ended = np.where(stop, 1, np.where(launch.steps + 1 >= max_steps, 2, 0)).astype(np.int8)
        frames = np.minimum(launch.steps + 1, length).astype(np.int32)
        return scheduler.finish(Done(launch, 0.001, frames, ended, failed=bad), now)
    if launch.frames is not None:
        samples = (launch.frames * FRAME_SAMPLES).astype(np.int32)
        return scheduler.finish(Done(launch, 0.001, samples=samples, failed=bad), now)
    return scheduler.finish(Done(launch, 0.001, failed=bad), now)
