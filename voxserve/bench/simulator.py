"""A simulated engine: the real scheduler on lanes that only cost time, under a virtual clock.

Lanes share one device: while several are busy each runs at the rate that `Costs.rates` gives it, so
a launch takes its cost when alone and longer beside others. Clients play what they get.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from voxserve.plugin import EndReason
from voxserve.scheduler.launches import (
    Arrival,
    Done,
    Lane,
    Launch,
    Outcome,
    Plan,
    Refusal,
    Released,
    Stage,
)


class Costs(Protocol):
    """How long launches take, and how lanes that run at once slow one another."""

    def seconds(self, launch: Launch) -> float:
        """When it runs alone."""

    def rates(self, busy: Iterable[Lane]) -> dict[Lane, float]:
        """Speed of each busy lane, 1.0 when it is as fast as alone."""


@dataclass(frozen=True)
class Talk:
    """One client. frames: length of its speech; the LM stops by itself unless `max_steps` is hit.

    events: (time, what, number) of what the client does later: "allow" with the steps allowed from
    then on, "cancel", "fail", and "played" with seconds. read_s: how long after a chunk is made the
    client's socket takes it; None for a client whose window does not matter.
    """

    arrival: Arrival
    frames: int
    events: Sequence[tuple[float, str, float]] = ()
    read_s: float | None = None


@dataclass
class Heard:
    """What became of a client. state: "", "refused", "finished", "cancelled" or "failed"."""

    state: str = ""
    first_s: float | None = None
    play_end_s: float = -np.inf
    stalled_s: float = 0.0
    audio_s: float = 0.0
    chunks: list[tuple[int, int, int]] = field(default_factory=list)
    complete: bool = False
    released: int = 0

    def hear(self, now: float, seconds: float) -> None:
        if self.first_s is None:
            self.first_s = now
        elif now > self.play_end_s:
            self.stalled_s += now - self.play_end_s
        self.play_end_s = max(self.play_end_s, now) + seconds
        self.audio_s += seconds


class Planner(Protocol):
    """What the simulation asks of a scheduler; the tests' oracle answers it too."""

    @property
    def slots_free(self) -> int: ...
    @property
    def pages_free(self) -> tuple[int, ...]: ...
    def submit(self, arrival: Arrival, now: float) -> Refusal | None: ...
    def allow(self, request: int, steps_allowed: int, now: float) -> None: ...
    def cancel(self, request: int, now: float) -> float | None: ...
    def fail(self, request: int, now: float) -> bool: ...
    def taken(self, request: int, taken_s: float) -> None: ...
    def played(self, request: int, played_s: float, now: float) -> None: ...
    def plan(self, now: float) -> Plan: ...
    def finish(self, done: Done, now: float) -> Outcome: ...
    def released(self) -> list[Released]: ...


class Simulation:
    """Runs talks through a scheduler.

    log: (start, launch) in order of their start. wakes: what each plan asked for.
    """

    def __init__(
        self,
        scheduler: Planner,
        costs: Costs,
        talks: Sequence[Talk],
        *,
        samples_per_frame: int,
        sample_rate_hz: int,
        fault_rate: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.scheduler = scheduler
        self.costs = costs
        self.talks = {talk.arrival.request: talk for talk in talks}
        self.heard = {request: Heard() for request in self.talks}
        self.refusals: dict[int, Refusal] = {}
        self.log: list[tuple[float, Launch]] = []
        self.wakes: list[float] = []
        self.now = 0.0
        self.busy_s = dict.fromkeys(Lane, 0.0)
        self.in_flight_most = dict.fromkeys(Lane, 0)
        self._samples_per_frame = samples_per_frame
        self._sample_rate_hz = sample_rate_hz
        self._fault_rate = fault_rate
        self._random = np.random.default_rng(seed)
        size = max(self.talks, default=0) + 1
        self._frames = np.zeros(size, np.int32)
        self._max_steps = np.zeros(size, np.int32)
        self._queues: dict[Lane, deque[Launch]] = {lane: deque() for lane in Lane}
        self._left_s = dict.fromkeys(Lane, 0.0)
        self._began = dict.fromkeys(Lane, 0.0)
        self._heap: list[tuple[float, int, str, int, float]] = []
        self._decoding: set[int] = set()
        self._over: set[int] = set()
        self._number = 0
        for talk in talks:
            request = talk.arrival.request
            self._frames[request] = talk.frames
            self._max_steps[request] = talk.arrival.max_steps
            self._push(talk.arrival.arrival_s, "submit", request)
            for at, what, number in talk.events:
                self._push(at, what, request, number)

    def run(self) -> None:
        """Until nothing is left to happen."""
        wake_at_s = np.inf
        while True:
            rates = self.costs.rates(lane for lane in Lane if self._queues[lane])
            ends = {lane: self.now + self._left_s[lane] / rate for lane, rate in rates.items()}
            heap_at = self._heap[0][0] if self._heap else np.inf
            at = min([heap_at, wake_at_s, *ends.values()])
            if at == np.inf:
                return
            for lane, rate in rates.items():
                self._left_s[lane] -= rate * (at - self.now)
                self.busy_s[lane] += at - self.now
            self.now = at
            while self._heap and self._heap[0][0] <= at:
                self._happen(*heapq.heappop(self._heap)[2:])
            for lane, end in ends.items():
                if end <= at:
                    self._finish(lane)
            plan = self.scheduler.plan(at)
            for launch in plan.launches:
                self._start(launch)
            wake_at_s = plan.wake_at_s
            self.wakes.append(wake_at_s)
            assert wake_at_s > at, "the scheduler asks to be woken in the past"

    def _push(self, at: float, what: str, request: int, number: float = 0.0) -> None:
        heapq.heappush(self._heap, (at, self._number, what, request, number))
        self._number += 1

    def _happen(self, what: str, request: int, number: float) -> None:
        scheduler = self.scheduler
        if what == "submit":
            refused = scheduler.submit(self.talks[request].arrival, self.now)
            if refused is not None:
                self.heard[request].state = "refused"
                self.refusals[request] = refused
        elif what == "allow":
            scheduler.allow(request, int(number), self.now)
        elif what == "taken":
            scheduler.taken(request, number)
        elif what == "played":
            scheduler.played(request, number, self.now)
        elif what == "cancel":
            if scheduler.cancel(request, self.now) is not None:
                self._over.add(request)
        elif scheduler.fail(request, self.now):
            self._over.add(request)
        self._collect()

    def _start(self, launch: Launch) -> None:
        queue = self._queues[launch.lane]
        queue.append(launch)
        if len(queue) == 1:
            self._left_s[launch.lane] = self.costs.seconds(launch)
            self._began[launch.lane] = self.now
        self.in_flight_most[launch.lane] = max(self.in_flight_most[launch.lane], len(queue))
        self.log.append((self.now, launch))
        if launch.stage is Stage.CODEC:
            requests = set(launch.requests.tolist())
            assert not requests & self._decoding, "two chunks of one request are in flight"
            self._decoding |= requests

    def _finish(self, lane: Lane) -> None:
        queue = self._queues[lane]
        launch = queue.popleft()
        run_s = self.now - self._began[lane]
        if queue:
            self._left_s[lane] = self.costs.seconds(queue[0])
            self._began[lane] = self.now
        done = Done(launch, run_s, failed=self._faults(launch))
        if launch.steps is not None:
            steps = launch.steps
            length, most = self._frames[launch.requests], self._max_steps[launch.requests]
            over = np.where(steps + 1 >= most, EndReason.LENGTH, EndReason.NONE)
            ended = np.where(steps >= length, EndReason.STOP, over).astype(np.int8)
            done = replace(done, frames=np.minimum(steps + 1, length), ended=ended)
        elif launch.frames is not None:
            done = replace(done, samples=launch.frames * np.int32(self._samples_per_frame))
        outcome = self.scheduler.finish(done, self.now)
        if launch.frames is not None:
            self._decoding -= set(launch.requests.tolist())
            self._deliver(launch, outcome)
        for request in outcome.finished:
            self.heard[request].complete = True
        self._collect()

    def _faults(self, launch: Launch) -> NDArray[np.bool_] | None:
        if not self._fault_rate:
            return None
        return self._random.random(len(launch.requests)) < self._fault_rate

    def _deliver(self, launch: Launch, outcome: Outcome) -> None:
        assert launch.frames is not None and launch.first_frame is not None
        assert launch.chunks is not None
        assert outcome.deliver is not None and outcome.final is not None
        for row in np.flatnonzero(outcome.deliver).tolist():
            request = int(launch.requests[row])
            talk, heard, frames = self.talks[request], self.heard[request], int(launch.frames[row])
            assert request not in self._over, "audio of a request that is over"
            audio_s = frames * self._samples_per_frame / self._sample_rate_hz
            heard.hear(self.now, audio_s / talk.arrival.speed)
            if talk.read_s is not None:
                self._push(self.now + talk.read_s, "taken", request, heard.audio_s)
            heard.chunks.append((int(launch.chunks[row]), int(launch.first_frame[row]), frames))
            heard.complete |= bool(outcome.final[row])

    def _collect(self) -> None:
        for released in self.scheduler.released():
            heard = self.heard[released.request]
            heard.state = released.cause
            heard.released += 1
            self._over.add(released.request)
