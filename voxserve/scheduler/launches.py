"""The words between the scheduler and whoever carries out its plans: plain integers and arrays."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int8Array = NDArray[np.int8]
BoolArray = NDArray[np.bool_]

SlotArray = NDArray[np.integer[Any]]
"""Slots by row. The scheduler makes them intp, with which numpy indexes several times as fast."""

NO_CLIP = -1
ALL_STEPS = 2**31 - 1
"""`steps_allowed` of a request whose text is complete."""


class Lane(IntEnum):
    LM = 0
    BACKGROUND = 1
    URGENT = 2


class Stage(IntEnum):
    ENCODE = 0
    PREFILL = 1
    DECODE = 2
    CODEC = 3


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as the scheduler sees it.

    ttfa_s: seconds after `arrival_s` by which its first audio is due; None for a request without
    deadlines (buffered, offline), which is never urgent and never refused for lateness.
    prompt_rows: prefill positions. max_steps: LM steps at most, prefill included.
    pages: pages it reserves, one number a pool. steps_allowed: LM steps for which text is there.
    clip: the number of its reference clip or NO_CLIP. clip_s: seconds of that clip when its
    features are not there yet, else 0; requests that wait for one clip share one ENCODE.
    clip_pages: pages that the clip takes beside a row, one number a pool, from those set apart.
    speed: output seconds = audio / speed.
    max_ahead_s, window_s: see `wire.Submit`; infinity where there is no limit.
    chunk_frames: wanted size of the first chunk, rounded down to a ramp that starts with it.
    """

    request: int
    arrival_s: float
    ttfa_s: float | None
    prompt_rows: int
    max_steps: int
    pages: tuple[int, ...] = ()
    steps_allowed: int = ALL_STEPS
    clip: int = NO_CLIP
    clip_s: float = 0.0
    clip_pages: tuple[int, ...] = ()
    speed: float = 1.0
    max_ahead_s: float = float("inf")
    window_s: float = float("inf")
    chunk_frames: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is turned away at once. code: "overloaded", "draining" or "out_of_memory"."""

    code: str
    message: str
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Launch:
    """One executable to run. Rows are n <= bucket rows; arrays are [n].

    rows, units: the bucket: rows and, by stage, prompt tokens, frames or clip seconds (decode: 0).
    requests: their ids, by row. slots: their slots (for ENCODE: numbers of the clips).
    steps: the LM step that each row computes (prefill, decode).
    chunks, first_frame, frames, last: the chunk of each row (codec).
    reason: why now: "first", "deadline", "full", "due", "idle" (codec); "" elsewhere.
    held_s: how long it was held back for running streams, or for others to join it (prefill).
    """

    number: int
    lane: Lane
    stage: Stage
    rows: int
    units: int
    requests: Int32Array
    slots: SlotArray
    steps: Int32Array | None = None
    chunks: Int32Array | None = None
    first_frame: Int32Array | None = None
    frames: Int32Array | None = None
    last: BoolArray | None = None
    reason: str = ""
    held_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """A finished launch. run_s: time on its lane, waiting excluded; not learnt from if rows failed.

    frames: [n] decodable frames after this step; ended: [n] EndReason (prefill, decode).
    samples: [n] samples emitted (codec). failed: [n] rows whose work is void; the requests fail.
    """

    launch: Launch
    run_s: float
    frames: Int32Array | None = None
    ended: Int8Array | None = None
    samples: Int32Array | None = None
    failed: BoolArray | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """A request that is over and held by no launch any more: its slot and pages are free.

    slot: -1 when it never had one. cause: "finished", "cancelled" or "failed".
    """

    request: int
    slot: int
    cause: str


@dataclass(slots=True)
class Outcome:
    """What `finish` made of a Done. Arrays are [n], rows of the launch (codec launches only).

    deliver: the row's audio goes to its client (not cancelled, not failed).
    final: it was the request's last chunk; its audio is complete.
    finished: requests that ended without a chunk to carry the end (no frame at all).
    """

    deliver: BoolArray | None = None
    final: BoolArray | None = None
    finished: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """launches: to be started in this order. wake_at_s: plan again then at the latest."""

    launches: list[Launch]
    wake_at_s: float
