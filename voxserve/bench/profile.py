"""Time every executable of a model, alone and beside the other lanes' load.

It drives the engine's lanes through their contract and nothing else, so what it measures is what
serves. The rows are real ones: their slots are prefilled, and decode steps see a growing context.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import combinations

import msgspec
import numpy as np

from voxserve.bench import workloads
from voxserve.bench.profile_file import SCHEMA, Profile, Sharing, Timing
from voxserve.bench.result import machine
from voxserve.config import Config
from voxserve.engine.build import Built, Report, build, lane_of, target_of
from voxserve.engine.lanes import Arrays, Key
from voxserve.engine.start import load
from voxserve.plugin import HostLogic
from voxserve.requests import SpeechRequest
from voxserve.scheduler.launches import Int32Array, Lane, Launch, Stage

CONTEXT_STEPS = 96
"""Decode steps after a prefill before the next: about the length of an utterance of ten seconds."""
LEAST_RUNS, MOST_RUNS = 3, 60
IN_FLIGHT = {Lane.LM: 2, Lane.BACKGROUND: 1, Lane.URGENT: 1}
"""Launches that a load keeps queued, as many as in service."""
POLL_S = 0.0005
"""A backend that spins in service may not wake anybody here."""
BESIDE: dict[Lane, tuple[Lane, ...]] = {
    Lane.LM: (Lane.BACKGROUND,),
    Lane.BACKGROUND: (Lane.LM,),
    Lane.URGENT: (Lane.LM,),
}


class Work:
    """An endless run of one executable on its lane, with inputs as in service."""

    def __init__(self, machine: Built, lane: Lane, key: Key) -> None:
        self.lane, self.key = lane, key
        self._machine = machine
        self._inputs = _inputs(machine, key)
        self._step = 0
        self.counts = True
        self._prefills: list[tuple[Key, Arrays]] = []
        if key.stage is Stage.DECODE:
            rows = min(key.rows, machine.shape.prefill_rows[-1])
            prefill = Key(Stage.PREFILL, rows, machine.shape.prefill_tokens[0], "whole")
            self._prefills = [
                (prefill, _inputs(machine, prefill, first)) for first in range(0, key.rows, rows)
            ]
        self._due = list(self._prefills)

    def next(self) -> tuple[Launch, Arrays]:
        """The next launch. `counts` tells whether it is of this executable itself."""
        self.counts = not self._due
        if self._due:
            key, inputs = self._due.pop()
            return _launch(self.lane, key), inputs
        self._step += 1
        inputs = dict(self._inputs)
        if self.key.stage is Stage.DECODE:
            inputs["steps"] = np.full(self.key.rows, self._step, np.int64)
            if self._step == CONTEXT_STEPS:
                self._step, self._due = 0, list(self._prefills)
        elif self.key.stage is Stage.CODEC:
            inputs["fresh"] = np.full(self.key.rows, self._step == 1)
            first = self.key.units * (self._step - 1) % CONTEXT_STEPS
            inputs["first_frame"] = np.full(self.key.rows, first, np.int64)
        return _launch(self.lane, self.key), inputs


class Driver:
    """Keeps lanes busy and notes how long launches take. budget_s: for each measurement."""

    def __init__(self, machine: Built, budget_s: float) -> None:
        self.machine = machine
        self._budget_s = budget_s
        self._in_flight = dict.fromkeys(Lane, 0)
        self._wake = threading.Event()
        machine.backend.on_done(self._wake.set)

    def run(self, work: Work, beside: Sequence[Work] = ()) -> tuple[list[float], list[float]]:
        """Seconds of each run of `work` while each of `beside` runs without a pause, and the gaps
        between them. Raises RuntimeError when a launch fails."""
        running = {each.lane: each for each in (work, *beside)}
        self._start(work)
        for each in beside:
            for _ in range(IN_FLIGHT[each.lane]):
                self._start(each)
        times: list[float] = []
        gaps: list[float] = []
        last_s, until_s = np.inf, time.monotonic() + self._budget_s
        while len(times) < LEAST_RUNS + 1 or (
            len(times) < MOST_RUNS and time.monotonic() < until_s
        ):
            counts = work.counts
            span = self._turn(running, work)
            if span is not None and counts:
                times.append(span[1] - span[0])
                gaps.append(span[0] - last_s)
            last_s = span[1] if span else last_s
        while any(self._in_flight.values()):
            self._turn(running, None)
        return times[1:], gaps[1:]

    def _turn(self, running: dict[Lane, Work], work: Work | None) -> tuple[float, float] | None:
        """Take in what has run and start it again, or let it rest when `work` is None.

        Returns begin and end of the run of `work`, if it is over.
        """
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
                span = (done.begin_s, done.end_s)
        return span

    def _start(self, work: Work) -> None:
        launch, inputs = work.next()
        backend = self.machine.backend
        self._in_flight[work.lane] += 1
        backend.lanes[work.lane].launch(launch, backend.executable(launch), inputs)


@contextmanager
def _opened(config: Config, report: Report) -> Iterator[tuple[HostLogic, Built]]:
    host, model = load(config, report)
    built = build(config, host.spec, model)
    built.warm_up(report)
    try:
        yield host, built
    finally:
        built.backend.close()


def profile(config: Config, report: Report, budget_s: float = 0.5) -> Profile:
    """Measure everything. budget_s: of each executable, alone and again beside the others.

    Raises CheckpointError, ValueError when the memory does not suffice.
    """
    with _opened(config, report) as (host, opened):
        driver = Driver(opened, budget_s)
        loads = _loads(opened)
        timings, gap_s = _timings(driver, loads, report)
        sharing = _sharing(driver, loads, report)
    target = target_of(config.engine)
    device, dtype = target.device, target.dtype
    return Profile(
        schema=SCHEMA,
        model=config.model,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        config=config.model_dump(mode="json", include={"engine", "policy"}),
        machine=machine(),
        device=device,
        dtype=dtype,
        shape=msgspec.to_builtins(opened.shape),
        samples_per_frame=opened.spec.samples_per_frame,
        prompt_rows=_prompt_rows(host),
        gap_s=gap_s,
        timings=timings,
        sharing=sharing,
    )


def _loads(machine: Built) -> dict[Lane, Key]:
    """The load of each lane: what it mostly runs when the server is half full."""
    shape = machine.shape
    rows = shape.codec_rows[len(shape.codec_rows) // 2]
    return {
        Lane.LM: Key(Stage.DECODE, shape.decode_rows[len(shape.decode_rows) // 2], 0, "lm"),
        Lane.BACKGROUND: Key(Stage.CODEC, rows, shape.frame_buckets[-1], "codec"),
        Lane.URGENT: Key(Stage.CODEC, 1, shape.ramps[0][0], "whole"),
    }


def _timings(driver: Driver, loads: dict[Lane, Key], report: Report) -> tuple[list[Timing], float]:
    machine, timings = driver.machine, []
    gap_s = 0.0
    for number, key in enumerate(machine.keys):
        report("timing executables", number, len(machine.keys))
        lane = lane_of(key)
        alone, gaps = driver.run(Work(machine, lane, key))
        if key == loads[Lane.LM]:
            gap_s = float(np.median(gaps))
        beside = {
            other.name: float(
                np.median(
                    driver.run(Work(machine, lane, key), [Work(machine, other, loads[other])])[0]
                )
            )
            for other in BESIDE[lane]
        }
        p50, p90 = np.percentile(alone, [50, 90]).tolist()
        timings.append(
            Timing(lane.name, key.stage.name, key.rows, key.units, p50, p90, beside, len(alone))
        )
    report("timing executables", len(machine.keys), len(machine.keys))
    return timings, gap_s


def _sharing(driver: Driver, loads: dict[Lane, Key], report: Report) -> list[Sharing]:
    """Each lane's load beside every set of the others."""
    sets = [
        (lane, others)
        for lane in Lane
        for size in (1, 2)
        for others in combinations([other for other in Lane if other is not lane], size)
    ]
    found = []
    for number, (lane, others) in enumerate(sets):
        report("timing lanes side by side", number, len(sets))
        alone = np.median(driver.run(Work(driver.machine, lane, loads[lane]))[0])
        works = [Work(driver.machine, other, loads[other]) for other in others]
        beside = np.median(driver.run(Work(driver.machine, lane, loads[lane]), works)[0])
        rate = min(1.0, float(alone / beside))
        found.append(Sharing(lane.name, [other.name for other in others], rate))
    report("timing lanes side by side", len(sets), len(sets))
    return found


def _launch(lane: Lane, key: Key) -> Launch:
    rows: Int32Array = np.arange(key.rows, dtype=np.int32)
    return Launch(0, lane, key.stage, key.rows, key.units, requests=rows, slots=rows)


def _inputs(machine: Built, key: Key, first: int = 0) -> Arrays:
    """Inputs on the slots [first, first + rows), each with pages of its own where there are."""
    table = machine.sizes.table_pages
    inputs = dict(machine.padding.blank(key, machine.spec, table))
    slots = np.arange(first, first + key.rows, dtype=np.int64)
    if key.stage is Stage.ENCODE:
        return inputs
    inputs["slots"] = slots
    if key.stage is Stage.PREFILL:
        for pool, entries in table.items():
            pages = slots[:, None] * entries + np.arange(entries)
            inputs[f"pages_{pool}"] = pages % max(1, machine.sizes.pages[pool])
    return inputs


def _prompt_rows(host: HostLogic) -> int:
    """Prefill positions that half of the texts of the usual workload do not exceed."""
    rows = [
        len(host.prompt(SpeechRequest(text=row.text)).rows)
        for row in workloads.load("libritts").rows
    ]
    return int(np.median(rows))
