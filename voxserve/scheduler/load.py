"""Estimates over whole requests, made from those of single launches, and what follows for ramps."""

from itertools import pairwise
from math import sqrt

import numpy as np

from voxserve.scheduler.buckets import Buckets
from voxserve.scheduler.estimates import Estimates, Quantile
from voxserve.scheduler.launches import Arrival, Lane, Stage
from voxserve.scheduler.policy import Policy, Shape
from voxserve.scheduler.rows import Rows

SETTLE = 0.05
"""Weight of the newest request in the running mean of how much of their cap requests use."""


class Load:
    """How fast things go with so many requests running.

    All figures rest on high quantiles, so they lean to the late side.
    """

    def __init__(self, shape: Shape, policy: Policy, estimates: Estimates, rows: Rows) -> None:
        self._shape = shape
        self._policy = policy
        self._estimates = estimates
        self._rows = rows
        self._decode_rows = Buckets(shape.decode_rows)
        self._frames = Buckets(shape.frame_buckets)
        self._prefill_rows = Buckets(shape.prefill_rows)
        self._tokens = Buckets(shape.prefill_tokens)
        self._codec_rows = Buckets(shape.codec_rows)
        self._used = 1.0
        self._turn = Quantile()
        self._last_step_at: float | None = None

    def stepped(self, now: float) -> None:
        """A decode step has run. The time since the one before is what a step really takes."""
        if self._last_step_at is not None:
            self._turn.add(now - self._last_step_at)
        self._last_step_at = now

    def rested(self) -> None:
        """The LM lane ran dry: the time to its next step will say nothing."""
        self._last_step_at = None
        if len(self._turn):
            self._turn = Quantile()

    def ended(self, steps: int, max_steps: int) -> None:
        """A request's LM part took `steps` of at most `max_steps`."""
        self._used += SETTLE * (steps / max_steps - self._used)

    def step_s(self, running: int) -> float:
        """Seconds on the LM lane in which each of `running` requests advances by one step."""
        largest = self._decode_rows.largest
        rows = self._decode_rows.holding(min(max(running, 1), largest))
        seconds = self._estimates.seconds(Lane.LM, Stage.DECODE, rows, 0)
        return seconds * self._rounds(running)

    def _rounds(self, running: int) -> float:
        """Launches in which each of `running` requests advances by one step."""
        return max(1.0, running / self._decode_rows.largest)

    def turn_s(self, running: int) -> float:
        """The same with what else the lane does between two steps."""
        return max(self.step_s(running), self._turn.value * self._rounds(running))

    def turns_s(self, count: int, running: int) -> float:
        """Seconds of `count` such turns in a row: over many, late ones and early ones even out."""
        late_s = self.turn_s(running)
        mean_s = max(self.step_s(running), self._turn.mean * self._rounds(running))
        mean_s = min(mean_s, late_s)
        return count * mean_s + sqrt(count) * (late_s - mean_s)

    def prefill_s(self, rows: int, tokens: int) -> float:
        return self._estimates.seconds(
            Lane.LM, Stage.PREFILL, self._prefill_rows.holding(rows), self._tokens.holding(tokens)
        )

    def encode_s(self, seconds: int) -> float:
        return self._estimates.seconds(Lane.LM, Stage.ENCODE, 1, seconds)

    def urgent_s(self, frames: int) -> float:
        """Seconds of one chunk on the lane that urgent chunks take."""
        lane = Lane.URGENT if self._policy.urgent_lane else Lane.BACKGROUND
        return self._estimates.seconds(lane, Stage.CODEC, 1, self._frames.holding(frames))

    def chunk_s(self, frames: int, running: int, ahead: int = 0) -> float:
        """Seconds to generate so many frames and `ahead` more, and to decode the former; the lane
        may just have become busy."""
        steps = (frames + ahead) * self._shape.steps_per_frame
        return self.turns_s(steps, running) + 2 * self.urgent_s(frames)

    def start_s(self, arrival: Arrival, running: int) -> float:
        """Seconds from the launch of its prefill, behind a step in flight, to its first audio."""
        first = self._shape.ramps[self.ramp(arrival, running)][0]
        chunk_s = self.chunk_s(first, running, self._shape.ahead_frames)
        return self.step_s(running) + self.prefill_s(1, arrival.prompt_rows) + chunk_s

    def background(self, streams: int) -> tuple[int, float]:
        """Rows and seconds of the codec batches that so many streams give rise to."""
        lane, wanted = Lane.BACKGROUND, self._policy.background_rows
        if not self._policy.background_lane:
            lane, wanted = Lane.URGENT, self._policy.urgent_rows
        rows = self._codec_rows.holding(min(wanted, max(streams, 1), self._codec_rows.largest))
        frames = self._shape.frame_buckets[-1]
        return rows, self._estimates.seconds(lane, Stage.CODEC, rows, frames)

    def release_s(self, count: int, running: int) -> float:
        """Seconds until `count` of the running requests are over, by how long requests usually are.

        More than run now are over after as many whole lives. The codec must get through the chunks
        that are ready and one more of each of them.
        """
        rows = self._rows
        slots = np.flatnonzero(rows.live)
        if not len(slots) or count < 1:
            return 0.0
        left = np.maximum(rows.max_steps[slots] * self._used - rows.launched[slots], 0.0)
        left[~rows.generating[slots]] = 0.0
        rounds, index = divmod(count - 1, len(slots))
        life = float(rows.max_steps[slots].mean()) * self._used
        steps = float(np.partition(left, index)[index]) + rounds * life
        batch, batch_s = self.background(running)
        chunks = int(np.count_nonzero(rows.frames >= rows.need)) + count
        return steps * self.turn_s(running) + (chunks / batch + 1) * batch_s

    def ramp(self, arrival: Arrival, running: int) -> int:
        """The chunk plan of a request that is admitted beside `running` others.

        A hint takes the largest first chunk that is not above it. Otherwise, by load: small chunks
        while the codec has time to spare, larger ones when it has little, but none whose first
        chunk takes half of the time to its deadline, and none so small that the audio of one chunk
        would not last until the next is made.
        """
        ramps = self._shape.ramps
        if arrival.chunk_frames is not None:
            hint = arrival.chunk_frames
            fitting = [index for index, ramp in enumerate(ramps) if ramp[0] <= hint]
            return max(fitting, key=lambda index: ramps[index][0], default=0)
        if self._policy.ramp != "load":
            return min(self._policy.ramp, len(ramps) - 1)
        if arrival.ttfa_s is None:
            return len(ramps) - 1
        busy = 2 * self._codec_share(running + 1) - 1
        index = min(max(int(len(ramps) * busy), 0), len(ramps) - 1)
        while index > 0 and self.chunk_s(ramps[index][0], running + 1) > arrival.ttfa_s / 2:
            index -= 1
        while index < len(ramps) - 1 and not self._lasts(ramps[index], arrival.speed, running + 1):
            index += 1
        return index

    def _codec_share(self, running: int) -> float:
        """Share of its time that the background lane needs for what the LM generates."""
        batch, batch_s = self.background(running)
        chunks = running / self._shape.frame_buckets[-1]
        frame_turns_s = self.turn_s(running) * self._shape.steps_per_frame
        return chunks / batch * batch_s / frame_turns_s if frame_turns_s else 0.0

    def _lasts(self, ramp: tuple[int, ...], speed: float, running: int) -> bool:
        """Whether the audio of each chunk lasts until the next one is made."""
        frame_s = self._shape.frame_s / speed
        slack_s = 0.0
        for now, after in pairwise(ramp):
            slack_s += now * frame_s - self.chunk_s(after, running)
            if slack_s < 0:
                return False
        return True
