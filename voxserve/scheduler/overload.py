"""What the load allows: the ramp of a new request, and whether a stream can keep its deadlines."""

from itertools import pairwise

import numpy as np

from voxserve.scheduler.admission import Waiting, refusal
from voxserve.scheduler.buckets import Buckets
from voxserve.scheduler.estimates import Estimates, Quantile
from voxserve.scheduler.launches import Arrival, Lane, Refusal, Stage
from voxserve.scheduler.lifecycle import Request
from voxserve.scheduler.policy import Policy, Shape
from voxserve.scheduler.rows import Rows

SETTLE = 0.05
"""Weight of the newest request in the running mean of how much of their cap requests use."""


class Load:
    """Estimates over whole requests, made from the estimates of single launches.

    All of them are what the running quantiles say, so they lean to the late side.
    """

    def __init__(
        self, shape: Shape, policy: Policy, estimates: Estimates, rows: Rows, waiting: Waiting
    ) -> None:
        self._shape = shape
        self._policy = policy
        self._estimates = estimates
        self._rows = rows
        self._waiting = waiting
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
        """The LM lane ran dry: the time to the next step will say nothing."""
        self._last_step_at = None
        if len(self._turn):
            self._turn = Quantile()

    def ended(self, steps: int, max_steps: int) -> None:
        """A request's LM part took `steps` of at most `max_steps`."""
        self._used += SETTLE * (steps / max_steps - self._used)

    def step_s(self, running: int) -> float:
        """Seconds in which each of `running` requests advances by one step."""
        largest = self._decode_rows.largest
        rows = self._decode_rows.holding(min(max(running, 1), largest))
        seconds = self._estimates.seconds(Lane.LM, Stage.DECODE, rows, 0)
        return seconds * max(1.0, running / largest)

    def prefill_s(self, rows: int, tokens: int) -> float:
        return self._estimates.seconds(
            Lane.LM, Stage.PREFILL, self._prefill_rows.holding(rows), self._tokens.holding(tokens)
        )

    def urgent_s(self, frames: int) -> float:
        """Seconds of one chunk on the lane that urgent chunks take."""
        lane = Lane.URGENT if self._policy.urgent_lane else Lane.BACKGROUND
        return self._estimates.seconds(lane, Stage.CODEC, 1, self._frames.holding(frames))

    def ramp(self, arrival: Arrival, running: int) -> int:
        """The chunk plan of a request that is admitted beside `running` others.

        A hint takes the largest first chunk that is not above it. Otherwise, by load: small chunks
        on an idle server, larger ones the more slots are taken, and larger still while the audio
        of one chunk would not last until the next is made.
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
        index = min(len(ramps) * running // self._shape.slots, len(ramps) - 1)
        while index < len(ramps) - 1 and not self._lasts(ramps[index], arrival.speed, running):
            index += 1
        return index

    def refuse(self, arrival: Arrival, order: int, running: int, now: float) -> Refusal | None:
        """Refuse a stream if the estimates say that it or its neighbours would miss a deadline."""
        if arrival.ttfa_s is None or not self._policy.refuse:
            return None
        if running == 0 and len(self._waiting) == 0:
            return None
        if not self._sustains(running + len(self._waiting) + 1, arrival.speed):
            message = f"{running} streams run, one more could not be kept in real time"
            return refusal("overloaded", message, self.release_s(1, running))
        deadline_s = arrival.arrival_s + arrival.ttfa_s
        ahead = self._waiting.ahead_of(deadline_s, order)
        late_s = self._first_audio_s(arrival, ahead, running) - (deadline_s - now)
        if late_s > 0:
            message = f"the first audio would come {late_s:.3f} s after its deadline"
            return refusal("overloaded", message, late_s)
        return None

    def _first_audio_s(self, arrival: Arrival, ahead: list[Request], running: int) -> float:
        """Seconds until the first chunk of `arrival` is made, if `ahead` go before it."""
        then = min(running + len(ahead) + 1, self._shape.slots)
        step_s = max(self.step_s(then), self._turn.value)
        wait_s = 0.0
        if self._waiting.lacking(ahead, arrival):
            wait_s = self.release_s(len(ahead) + 1 - self._waiting.slots_free, running)
        batch = self._prefill_rows.largest
        prefills = len(ahead) // batch + 1
        tokens = max([arrival.prompt_rows] + [r.arrival.prompt_rows for r in ahead])
        prefill_s = prefills * self.prefill_s(min(len(ahead) + 1, batch), tokens)
        frames = self._shape.ramps[self.ramp(arrival, then - 1)][0]
        steps = (frames + self._shape.ahead_frames) * self._shape.steps_per_frame - 1
        queued_s = (self._policy.lm_in_flight - 1) * self.step_s(running) if running else 0.0
        return wait_s + queued_s + prefill_s + steps * step_s + 2 * self.urgent_s(frames)

    def release_s(self, count: int, running: int) -> float:
        """Seconds until `count` of the running requests are over, by how long requests usually are.

        More than run now are over after as many whole lives.
        """
        rows = self._rows
        slots = np.flatnonzero(rows.live)
        if not len(slots) or count < 1:
            return 0.0
        step_s = max(self.step_s(running), self._turn.value)
        left = np.maximum(rows.max_steps[slots] * self._used - rows.launched[slots], 0.0)
        left[~rows.generating[slots]] = 0.0
        rounds, index = divmod(count - 1, len(slots))
        life = float(rows.max_steps[slots].mean()) * self._used
        nth = float(np.partition(left, index)[index]) + rounds * life
        return nth * step_s + self.urgent_s(self._shape.frame_buckets[-1])

    def _sustains(self, streams: int, speed: float) -> bool:
        """Whether LM and codec together keep up with that many listeners in real time."""
        frame_s = self._shape.frame_s / speed
        streams = min(streams, self._shape.slots)
        if self.step_s(streams) * self._shape.steps_per_frame > frame_s:
            return False
        lane = Lane.BACKGROUND if self._policy.background_lane else Lane.URGENT
        wanted = self._policy.background_rows
        if lane is Lane.URGENT:
            wanted = self._policy.urgent_rows
        rows = self._codec_rows.holding(min(wanted, streams, self._codec_rows.largest))
        frames = self._shape.frame_buckets[-1]
        batch_s = self._estimates.seconds(lane, Stage.CODEC, rows, frames)
        return batch_s * streams / rows <= frames * frame_s

    def _lasts(self, ramp: tuple[int, ...], speed: float, running: int) -> bool:
        """Whether each chunk plays at least as long as the next one takes to make."""
        step_s = max(self.step_s(running + 1), self._turn.value) * self._shape.steps_per_frame
        frame_s = self._shape.frame_s / speed
        slack_s = 0.0
        for now, after in pairwise(ramp):
            slack_s += now * frame_s - after * step_s - 2 * self.urgent_s(after)
            if slack_s < 0:
                return False
        return True
