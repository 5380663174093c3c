"""The numbers and switches of the scheduling policy. Defaults live in `voxserve.config`."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Policy:
    """See docs/scheduling.md for what each does.

    urgent_slack_s: a chunk whose deadline is nearer than this is urgent. urgent_rows: largest
    urgent batch. background_batch: ready chunks that start a background batch.
    background_rows: largest background batch. prefill_rows: largest prefill batch.
    prefill_defer_s: longest time in a row that a prefill waits for running streams.
    admission: `deadline` or `prefill-first`. refuse: turn away streams that would miss.
    lm_in_flight: launches queued on the LM lane. ramp: index into the model's ramps, or `load` to
    choose by load when a request is admitted. urgent_lane, background_lane: ablation switches: off
    means that its work goes to the other one. overlap: False runs one launch at a time over all
    lanes (the synchronous loop).
    """

    urgent_slack_s: float
    urgent_rows: int
    background_batch: int
    background_rows: int
    prefill_rows: int
    prefill_defer_s: float
    admission: Literal["deadline", "prefill-first"]
    refuse: bool
    max_waiting: int
    lm_in_flight: int
    ramp: int | Literal["load"]
    urgent_lane: bool
    background_lane: bool
    overlap: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """What the scheduler must know of the model and of the memory at hand.

    slots: running requests at most. pages: pages of each pool. decode_rows, prefill_rows,
    codec_rows: row buckets, ascending. frame_s: seconds of audio a frame.
    steps_per_frame: LM steps that one more frame takes. clips: reference clips at most; clip_pages:
    further pages of each pool, which they share. The rest as in `plugin.ModelSpec`.
    """

    slots: int
    pages: tuple[int, ...]
    frame_s: float
    sample_rate_hz: int
    frame_buckets: tuple[int, ...]
    ramps: tuple[tuple[int, ...], ...]
    ahead_frames: int
    prefill_tokens: tuple[int, ...]
    decode_rows: tuple[int, ...]
    prefill_rows: tuple[int, ...]
    codec_rows: tuple[int, ...]
    encode_seconds: tuple[int, ...] = ()
    steps_per_frame: int = 1
    padded_chunks: bool = False
    clips: int = 0
    clip_pages: tuple[int, ...] = ()
