"""Keep an engine's lanes busy with chosen executables and note how long each run takes.

It drives the lanes through their contract and nothing else, so what it measures is what serves. The
rows are real ones: their slots are prefilled, and decode steps see a growing context.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from voxserve.engine.build import Built
from voxserve.engine.lanes import Arrays, Key
from voxserve.scheduler.launches import Int32Array, Lane, Launch, Stage

CONTEXT_STEPS = 96
"""Decode steps after a prefill before the next: about the length of an utterance of ten seconds."""
LEAST_RUNS, MOST_RUNS = 3, 60
LEAST_BUDGET_S, MOST_BUDGET_S = 0.02, 0.5
IN_FLIGHT = {Lane.LM: 2, Lane.BACKGROUND: 1, Lane.URGENT: 1}
"""Launches that a load keeps queued, as many as in service."""
POLL_S = 0.0005
"""How long to wait for a backend that wakes whoever waits. One that does not is polled."""


def warm_keys(machine: Built, keys: Sequence[Key]) -> list[Key]:
    """`keys` and the prefills that their decode steps start from."""
    needed = [_prefill_key(machine, key) for key in keys if key.stage is Stage.DECODE]
    return list(dict.fromkeys([*needed, *keys]))


class Work:
    """An endless run of one executable on its lane, with inputs as in service."""

    def __init__(self, machine: Built, lane: Lane, key: Key) -> None:
        self.lane, self.key = lane, key
        self._inputs = _inputs(machine, key)
        self._step = 0
        self._steps = min(CONTEXT_STEPS, machine.sizes.context - machine.shape.prefill_tokens[0])
        self._prefills: list[tuple[Key, Arrays]] = []
        if key.stage is Stage.DECODE:
            prefill = _prefill_key(machine, key)
            self._prefills = [
                (prefill, _inputs(machine, prefill, first))
                for first in range(0, key.rows, prefill.rows)
            ]
        self._due = list(self._prefills)

    def next(self) -> tuple[Launch, Arrays]:
        """The next launch: of this executable, or of a prefill that it needs first."""
        if self._due:
            key, inputs = self._due.pop()
            return _launch(self.lane, key), inputs
        self._step += 1
        inputs = dict(self._inputs)
        if self.key.stage is Stage.DECODE:
            inputs["steps"] = np.full(self.key.rows, self._step, np.int64)
            if self._step >= self._steps - 1:
                self._step, self._due = 0, list(self._prefills)
        elif self.key.stage is Stage.CODEC:
            inputs["fresh"] = np.full(self.key.rows, self._step == 1)
            first = self.key.units * (self._step - 1) % CONTEXT_STEPS
            inputs["first_frame"] = np.full(self.key.rows, first, np.int64)
        return _launch(self.lane, self.key), inputs


@dataclass(slots=True)
class Runs:
    """seconds: of each run. gaps: from the end of the run before to the begin of each."""

    seconds: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    @property
    def median_s(self) -> float:
        return float(np.median(self.seconds))


class Pace:
    """Spreads what is left of a time budget over the measurements that are left.

    until_s: CLOCK_MONOTONIC. Late measurements become short, never none.
    """

    def __init__(self, until_s: float, measurements: int) -> None:
        self._until_s = until_s
        self._left = measurements

    def next_s(self) -> float:
        """Seconds for the next measurement."""
        share = (self._until_s - time.monotonic()) / max(1, self._left)
        self._left -= 1
        return min(max(share, LEAST_BUDGET_S), MOST_BUDGET_S)


class Driver:
    """Keeps lanes busy and notes how long launches take."""

    def __init__(self, machine: Built) -> None:
        self.machine = machine
        self._in_flight = dict.fromkeys(Lane, 0)
        self._wake = threading.Event()
        machine.backend.on_done(self._wake.set)

    def run(
        self,
        work: Work,
        beside: Sequence[Work] = (),
        *,
        budget_s: float,
        in_flight: int | None = None,
    ) -> Runs:
        """Runs of `work` while each of `beside` runs without a pause.

        in_flight: launches of `work` queued at once, as in service if not given. Raises
        RuntimeError when a launch fails.
        """
        for each in (work, *beside):
            for _ in range(in_flight if each is work and in_flight else IN_FLIGHT[each.lane]):
                self._start(each)
        running = {each.lane: each for each in (work, *beside)}
        runs = Runs()
        last_s, until_s = np.inf, time.monotonic() + budget_s
        # The first run may come before the load beside it is under way.
        while len(runs.seconds) < LEAST_RUNS + 1 or (
            len(runs.seconds) <= MOST_RUNS and time.monotonic() < until_s
        ):
            span = self._turn(running, work)
            if span is not None:
                stage, begin_s, end_s = span
                if stage is work.key.stage:
                    runs.seconds.append(end_s - begin_s)
                    runs.gaps.append(begin_s - last_s)
                last_s = end_s
        while any(self._in_flight.values()):
            self._turn(running, None)
        return Runs(runs.seconds[1:], runs.gaps[1:])

    def _turn(
        self, running: dict[Lane, Work], work: Work | None
    ) -> tuple[Stage, float, float] | None:
        """Take in what has run and start it again, or let it rest when `work` is None.

        Returns stage, begin and end of the launch of `work` that is over, if one is.
        """
        if not self.machine.backend.polls:
            self._wake.wait(POLL_S)
            self._wake.clear()
        span = None
        for lane, each in running.items():
            done = self.machine.backend.lanes[lane].poll()
            if done is None:
                continue
            self._in_flight[lane] -= 1
            if done.error:
                raise RuntimeError(f"{each.key}: {done.error}")
            if work is not None:
                self._start(each)
            if each is work:
                span = (done.launch.stage, done.begin_s, done.end_s)
        return span

    def _start(self, work: Work) -> None:
        launch, inputs = work.next()
        backend = self.machine.backend
        self._in_flight[work.lane] += 1
        backend.lanes[work.lane].launch(launch, backend.executable(launch), inputs)


def _prefill_key(machine: Built, decode: Key) -> Key:
    rows = min(decode.rows, machine.shape.prefill_rows[-1])
    return Key(Stage.PREFILL, rows, machine.shape.prefill_tokens[0], "whole")


def _launch(lane: Lane, key: Key) -> Launch:
    rows: Int32Array = np.arange(key.rows, dtype=np.int32)
    return Launch(0, lane, key.stage, key.rows, key.units, requests=rows, slots=rows)


def _inputs(machine: Built, key: Key, first: int = 0) -> Arrays:
    """Inputs on the slots [first, first + rows), each with pages of its own where there are.

    A bucket may hold more rows than there are slots; the rest of it is padding.
    """
    table, spare = machine.sizes.table_pages, machine.sizes.slots
    inputs = dict(machine.padding.blank(key, machine.spec, machine.sizes))
    if key.stage is Stage.ENCODE:
        return inputs
    slots = np.minimum(np.arange(first, first + key.rows, dtype=np.int64), spare)
    inputs["slots"] = slots
    if key.stage is Stage.PREFILL:
        for pool, entries in table.items():
            total = machine.sizes.spare_pages[pool]
            pages = (slots[:, None] * entries + np.arange(entries)) % max(1, total)
            inputs[f"pages_{pool}"] = np.where(slots[:, None] == spare, total, pages)
    return inputs
