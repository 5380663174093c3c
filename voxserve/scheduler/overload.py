"""When to turn a stream away, and when to let a prefill wait."""

from voxserve.scheduler.admission import Waiting, refusal
from voxserve.scheduler.launches import Arrival, Refusal
from voxserve.scheduler.lifecycle import Request
from voxserve.scheduler.load import Load
from voxserve.scheduler.policy import Policy, Shape
from voxserve.scheduler.rows import Rows, Slots


class Overload:
    """Refuses streams that would miss their deadlines or make others miss theirs."""

    def __init__(self, shape: Shape, policy: Policy, load: Load, waiting: Waiting) -> None:
        self._shape = shape
        self._policy = policy
        self._load = load
        self._waiting = waiting

    def refuse(self, arrival: Arrival, order: int, running: int, now: float) -> Refusal | None:
        """Why to turn the request away, or None. An idle server takes whatever comes."""
        waiting = len(self._waiting)
        if waiting - self._waiting.slots_free >= self._policy.max_waiting:
            message = f"{waiting} requests wait, at most {self._policy.max_waiting}"
            return refusal("overloaded", message, self._load.release_s(1, running))
        if arrival.ttfa_s is None or not self._policy.refuse or not running + waiting:
            return None
        if not self._sustains(running + waiting + 1, arrival.speed):
            message = f"{running} requests run, one more could not be kept in real time"
            return refusal("overloaded", message, self._load.release_s(1, running))
        deadline_s = arrival.arrival_s + arrival.ttfa_s
        ahead = self._waiting.ahead_of(deadline_s, order)
        late_s = self._first_audio_s(arrival, ahead, running) - (deadline_s - now)
        if late_s > 0:
            message = f"the first audio would come {late_s:.3f} s after its deadline"
            return refusal("overloaded", message, late_s)
        return None

    def _first_audio_s(self, arrival: Arrival, ahead: list[Request], running: int) -> float:
        """Seconds until the first chunk of `arrival` is made, if `ahead` go before it."""
        load = self._load
        then = min(running + len(ahead), self._shape.slots - 1)
        wait_s = 0.0
        if self._policy.admission == "deadline":
            wait_s = self._policy.prefill_defer_s * crowding(then + 1, self._shape.slots)
        if self._waiting.lacking(ahead, arrival):
            # Pages, or room for clips, can be short while slots are not.
            releases = max(1, len(ahead) + 1 - self._waiting.slots_free)
            wait_s += load.release_s(releases, running)
        batches, rows = divmod(len(ahead), self._shape.prefill_rows[-1])
        tokens = max([arrival.prompt_rows, *(request.arrival.prompt_rows for request in ahead)])
        wait_s += batches * load.prefill_s(self._shape.prefill_rows[-1], tokens)
        wait_s += load.prefill_s(rows + 1, tokens) - load.prefill_s(1, arrival.prompt_rows)
        return wait_s + load.start_s(arrival, then)

    def _sustains(self, streams: int, speed: float) -> bool:
        """Whether LM and codec keep up with that many listeners in real time."""
        streams = min(streams, self._shape.slots)
        frame_s = self._shape.frame_s / speed
        if self._load.step_s(streams) * self._shape.steps_per_frame > frame_s:
            return False
        rows, batch_s = self._load.background(streams)
        return batch_s * max(streams / rows, 1.0) <= self._shape.frame_buckets[-1] * frame_s


class Hold:
    """Lets prefills wait for running streams, and for one another.

    Under the admission policy `deadline` a prefill waits while the least slack of the streams that
    have sent audio is below its own run time. It also waits for others to fill its batch, the
    longer the more slots are taken, and never beyond half of the first request's own slack. Neither
    lasts longer than `prefill_defer_s` in a row. Under `prefill-first` nothing waits.
    """

    def __init__(self, shape: Shape, policy: Policy, load: Load, rows: Rows) -> None:
        self._policy = policy
        self._load = load
        self._rows = rows
        self._slots = shape.slots
        self._full = min(policy.prefill_rows, shape.prefill_rows[-1])
        self._chunk = shape.frame_buckets[-1]
        self._since: float | None = None
        self._head: Request | None = None
        self._spare_s = 0.0
        self.until_s = 0.0

    def clear(self) -> None:
        """Nothing is held: the next hold begins anew."""
        self._since = None
        self._head = None

    def held_s(self, now: float) -> float:
        """How long the present hold has lasted."""
        return 0.0 if self._since is None else now - self._since

    def holds(
        self, batch: list[Request], run_s: float, runnable: Slots, running: int, now: float
    ) -> bool:
        """Whether a launch of `run_s` must wait, until `until_s` at the latest.

        batch: what a prefill would take; empty for the encoder, whose launches take one clip each.
        """
        if self._policy.admission != "deadline" or not len(runnable):
            return False
        since = now if self._since is None else self._since
        if self._least_slack(runnable, running, now) < run_s:
            self.until_s = since + self._policy.prefill_defer_s
        elif 0 < len(batch) < self._full:
            most_s = self._policy.prefill_defer_s * crowding(running + 1, self._slots)
            self.until_s = since + min(most_s, self._spare(batch[0], running, since) / 2)
        else:
            return False
        self._since = since
        return now < self.until_s

    def _spare(self, head: Request, running: int, since: float) -> float:
        """Slack of the first request, as it was when it came to be the first."""
        if head is not self._head:
            self._head = head
            self._spare_s = head.deadline_s - since - self._load.start_s(head.arrival, running)
        return self._spare_s

    def _least_slack(self, runnable: Slots, running: int, now: float) -> float:
        """Of the streams that have sent audio and must generate for their next chunk."""
        rows = self._rows
        sent = rows.timed[runnable] & rows.sent[runnable]
        slots = runnable[sent & (rows.need[runnable] > rows.frames[runnable])]
        if not len(slots):
            return float("inf")
        step_s, codec_s = self._load.step_s(running), self._load.urgent_s(self._chunk)
        return float(rows.slack(slots, now, step_s, codec_s).min())


def crowding(running: int, slots: int) -> float:
    """How much gathering pays: next to nothing with few requests, all of it with every slot taken.

    The square keeps the first audio early until prefills really crowd the steps.
    """
    return min(running / slots, 1.0) ** 2
