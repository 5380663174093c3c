"""Which chunks the codec decodes next, on which lane, and why now."""

from dataclasses import dataclass, replace

import numpy as np

from voxserve.scheduler.buckets import Buckets
from voxserve.scheduler.estimates import Estimates
from voxserve.scheduler.launches import BoolArray, Int32Array, Lane, Stage
from voxserve.scheduler.policy import Policy, Shape
from voxserve.scheduler.rows import Rows, Slots


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks of one frame bucket. slots, frames, last: [n]; reason as in `Launch`."""

    lane: Lane
    rows: int
    units: int
    slots: Slots
    frames: Int32Array
    last: BoolArray
    reason: str


class Chunks:
    """Sorts the ready chunks into urgent and background ones and cuts batches from them.

    `look` takes stock once a turn; then `urgent` and `background` each give a batch, or None while
    there is no reason to start one. `wake_at_s` says when a reason will come with time alone.
    With one of the two lanes switched off the other one serves all chunks by both rules.
    """

    def __init__(self, shape: Shape, policy: Policy, estimates: Estimates, rows: Rows) -> None:
        if not (policy.urgent_lane or policy.background_lane):
            raise ValueError("urgent_lane and background_lane are both off, one must be on")
        self._policy = policy
        self._estimates = estimates
        self._rows = rows
        self._codec_rows = Buckets(shape.codec_rows)
        self._frames = Buckets(shape.frame_buckets)
        self._padded = shape.padded_chunks
        self._urgent_rows = min(policy.urgent_rows, self._codec_rows.largest)
        self._background_rows = min(policy.background_rows, self._codec_rows.largest)
        self._now = 0.0
        self._start_s = np.inf
        self._slots: Slots = np.zeros(0, np.intp)
        self._urgent: BoolArray = np.zeros(0, np.bool_)

    def look(self, now: float) -> None:
        """Take stock of the ready chunks."""
        rows = self._rows
        self._now = now
        self._start_s = np.inf
        self._slots = slots = rows.ready()
        promoted = rows.due[slots] - self._policy.urgent_slack_s <= now
        self._urgent = rows.timed[slots] & (promoted | ~rows.sent[slots])

    def urgent(self, step_s: float, idle: bool) -> Batch | None:
        """The next batch of the urgent lane."""
        if not self._policy.urgent_lane:
            return None
        if not self._policy.background_lane:
            return self._any(Lane.URGENT, self._urgent_rows, step_s, idle)
        slots = self._slots[self._urgent]
        if not len(slots):
            return None
        return self._cut(Lane.URGENT, slots, self._urgent_rows, self._urgency(slots))

    def background(self, step_s: float, idle: bool) -> Batch | None:
        """The next batch of the background lane.

        step_s: estimated time of an LM step. idle: the LM has nothing to generate.
        """
        if not self._policy.background_lane:
            return None
        if not self._policy.urgent_lane:
            return self._any(Lane.BACKGROUND, self._background_rows, step_s, idle)
        slots = self._slots[~self._urgent]
        return self._patient(Lane.BACKGROUND, slots, self._background_rows, step_s, idle)

    def wake_at_s(self, urgent_free: bool, background_free: bool) -> float:
        """When a waiting chunk is promoted, or starts a batch for its deadline."""
        patient_free = background_free if self._policy.background_lane else urgent_free
        if patient_free:
            return self._start_s
        if not (urgent_free and self._policy.urgent_lane and self._policy.background_lane):
            return np.inf
        slots = self._slots[~self._urgent & ~self._rows.decoding[self._slots]]
        due = self._rows.due[slots[self._rows.timed[slots]]]
        return float(due.min()) - self._policy.urgent_slack_s if len(due) else np.inf

    def _any(self, lane: Lane, limit: int, step_s: float, idle: bool) -> Batch | None:
        if self._urgent.any():
            first = self._slots[self._urgent]
            slots = np.concatenate((first, self._slots[~self._urgent]))
            return self._cut(lane, slots, limit, self._urgency(first))
        return self._patient(lane, self._slots, limit, step_s, idle)

    def _patient(
        self, lane: Lane, slots: Slots, limit: int, step_s: float, idle: bool
    ) -> Batch | None:
        if not len(slots):
            return None
        if len(slots) >= self._policy.background_batch:
            return self._worthwhile(lane, slots, limit)
        batch = self._cut(lane, slots, limit, "idle")
        run_s = self._estimates.seconds(lane, Stage.CODEC, batch.rows, batch.units)
        start_s = float(self._rows.due[slots[0]]) - self._policy.urgent_slack_s - run_s - step_s
        if start_s <= self._now:
            return replace(batch, reason="due")
        if idle:
            return batch
        self._start_s = start_s
        return None

    def _worthwhile(self, lane: Lane, slots: Slots, limit: int) -> Batch:
        """As many chunks as fill a bucket, where a padded larger one would take longer a chunk."""
        batch = self._cut(lane, slots, limit, "full")
        count = len(batch.slots)
        fewer = self._codec_rows.within(count)
        if fewer == count or not fewer:
            return batch
        padded_s = self._estimates.seconds(lane, Stage.CODEC, batch.rows, batch.units)
        filled_s = self._estimates.seconds(lane, Stage.CODEC, fewer, batch.units)
        if filled_s * count < padded_s * fewer:
            return replace(
                batch,
                rows=fewer,
                slots=batch.slots[:fewer],
                frames=batch.frames[:fewer],
                last=batch.last[:fewer],
            )
        return batch

    def _urgency(self, slots: Slots) -> str:
        return "deadline" if self._rows.sent[slots[0]] else "first"

    def _cut(self, lane: Lane, slots: Slots, limit: int, reason: str) -> Batch:
        """The chunks that share the frame bucket of the first one, `limit` at most."""
        frames, last = self._rows.cut(slots)
        units = self._frames.holding(int(frames[0]))
        whole = (frames == units) | ((last | self._padded) & (frames <= units))
        fits = whole.nonzero()[0][:limit]
        rows = self._codec_rows.holding(len(fits))
        return Batch(lane, rows, units, slots[fits], frames[fits], last[fits], reason)
