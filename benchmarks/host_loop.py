"""What one row-step costs the engine's thread: the real loop, scheduler, wire and step logic.

The lanes are instant: a launch has run by the next turn, with canned codes and audio, so all the
time that is measured is the host's own. Requests of 7.8 s in the shapes of Qwen3-TTS (16 codebooks,
12.5 frames a second, chunks of 10 frames) come as quickly as it takes to keep 128 rows in every LM
step; others wait for their last chunks meanwhile. The clock is virtual, 6.5 ms a turn of one LM
step, so that deadlines, batches and chunk sizes come as in a busy server, while thread-CPU time is
measured around the loop's turns alone.

    python benchmarks/host_loop.py [--rows 128] [--turns 1500] [--profile]

Prints one JSON line. `reference_us` in it is the thread-CPU time of `sum(range(1000))` in the same
run and tells how much the neighbours took of the core. With --profile also where the time goes, by
file and by function (the profiler itself makes small functions look dearer than they are).
"""

import argparse
import cProfile
import gc
import json
import platform
import pstats
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

import numpy as np

from voxserve.config import load_config
from voxserve.engine.channel import Channel
from voxserve.engine.executables import key_of, keys_of, shape_of
from voxserve.engine.lanes import Arrays, Executable, Key, LaneDone, LaneQueue
from voxserve.engine.loop import Loop
from voxserve.engine.memory import Sizes
from voxserve.plugin import ModelSpec, PagePool
from voxserve.requests import Prompt
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.estimates import Estimates
from voxserve.scheduler.launches import Lane, Launch, Stage
from voxserve.steps import EosSteps
from voxserve.wire import (
    Frames,
    PcmChunk,
    Submit,
    decode_from_engine,
    encode,
    pack_prompt,
)

GOAL_US = 8.0
STEP_S = 0.0065
FRAMES = 98
EOS = 2150
STARTS = 3
PREFILL_TURNS = 4
"""Turns from a submission until the request's row is in the decode steps."""
CONTEXT = 2048
SPEC = ModelSpec(
    sample_rate_hz=24_000,
    samples_per_frame=1920,
    codebooks=16,
    columns=tuple((0, book) for book in range(16)),
    frame_buckets=(1, 2, 4, 10),
    ramps=((1, 2, 4, 10), (2, 4, 10), (4, 10), (10,)),
    prompt_columns=2,
    inject_columns=1,
    pad_row=(0,),
    max_context=CONTEXT,
    prefill_tokens=(32, 64),
    state=(),
    pools=(PagePool("kv", 64, lambda rows, steps: rows + steps - 1),),
)


class Built:
    """An executable that is never run."""

    def __init__(self, key: Key) -> None:
        self.key = key


class InstantLane:
    """A lane whose launches take no time, with codes and audio made beforehand.

    One launch comes back a turn, as on a device, where each completion wakes the loop by itself.
    """

    def __init__(self, name: Lane) -> None:
        self.name = name
        self.wake: Callable[[], object] = int
        self.rows: Counter[Stage] = Counter()
        self.latest: Counter[Stage] = Counter()
        self._done: deque[LaneDone] = deque()
        self._ready = False
        noise = np.random.default_rng(0)
        self._codes = noise.integers(0, 2048, (64, 256, 16), np.int32)
        self._pcm = noise.integers(-9000, 9000, (64, 10 * SPEC.samples_per_frame), np.int16)

    def launch(self, launch: Launch, executable: Executable, inputs: Arrays) -> None:
        rows = len(launch.slots)
        self.rows[launch.stage] += rows
        self.latest[launch.stage] = rows
        outputs: Arrays
        if launch.stage is Stage.CODEC:
            outputs = {"pcm": self._pcm[:rows, : launch.units * SPEC.samples_per_frame]}
        else:
            outputs = {"codes": self._codes[launch.number % 64, :rows]}
        self._done.append(LaneDone(launch, outputs, 0.0, STEP_S))

    def next_turn(self) -> None:
        """Let the oldest launch be done."""
        self._ready = bool(self._done)
        if self._ready:
            self.wake()

    def poll(self) -> LaneDone | None:
        if not self._ready:
            return None
        self._ready = False
        return self._done.popleft()


class InstantBackend:
    polls = False

    def __init__(self, keys: list[Key]) -> None:
        self._lanes = {lane: InstantLane(lane) for lane in Lane}
        self.lanes: Mapping[Lane, LaneQueue] = self._lanes
        self._executables = {key: Built(key) for key in keys}

    def executable(self, launch: Launch) -> Built:
        return self._executables[key_of(launch)]

    def warm(self, key: Key, inputs: Arrays) -> float:
        return 0.0

    def on_done(self, wake: Callable[[], None]) -> None:
        for lane in self._lanes.values():
            lane.wake = wake

    def next_turn(self) -> None:
        for lane in self._lanes.values():
            lane.next_turn()

    def row_steps(self) -> int:
        return self._lanes[Lane.LM].rows[Stage.DECODE]

    def generating(self) -> int:
        """Rows of the latest decode step."""
        return self._lanes[Lane.LM].latest[Stage.DECODE]

    def close(self) -> None:
        """Nothing runs."""


class Bench:
    """A loop, and the other end of its socket, which keeps `rows` requests generating."""

    def __init__(self, rows: int) -> None:
        policy = load_config(None, {"policy": {"refuse": False}}).policy.policy()
        slots, pages = 2 * rows, 2 * rows * CONTEXT // 64
        shape = shape_of(SPEC, policy, slots, (pages,))
        sizes = Sizes(
            slots=slots,
            clips=0,
            context=CONTEXT,
            pages={"kv": pages},
            clip_pages={"kv": 0},
            table_pages={"kv": CONTEXT // 64},
            clip_table_pages={"kv": 0},
            dtype="float32",
        )
        self.backend = InstantBackend(keys_of(shape))
        self.chunks = 0
        self.now = 1.0
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        self.loop = Loop(
            Scheduler(shape, policy, Estimates()),
            EosSteps(slots, EOS, SPEC.samples_per_frame),
            SPEC,
            sizes,
            self.backend,
            Channel(theirs),
            clock=lambda: self.now,
        )
        self._frames = Frames()
        self._next = 0
        self._rows = rows
        self._begun: deque[int] = deque([0] * PREFILL_TURNS)

    def turn(self, profile: cProfile.Profile | None = None) -> float:
        """One turn of the loop; its thread-CPU seconds."""
        self._submit()
        self.now += STEP_S
        self.backend.next_turn()
        if profile:
            profile.enable()
        begin = time.thread_time()
        self.loop.turn()
        spent = time.thread_time() - begin
        if profile:
            profile.disable()
        self._read()
        return spent

    def _submit(self) -> None:
        """As many as are missing, a few a turn, so that they are spread over their length."""
        there = self.backend.generating() + sum(self._begun)
        count = min(max(self._rows - there, 0), STARTS)
        self._begun.popleft()
        self._begun.append(count)
        prompt = Prompt(
            rows=np.ones((20, 2), np.int32),
            inject=np.ones((30, 1), np.int32),
            text_open=False,
            max_steps=FRAMES,
            sampling=np.ones(5, np.float32),
            seed=0,
            input_tokens=30,
            ignore_eos=True,
        )
        for number in range(self._next, self._next + count):
            submit = Submit(number, self.now, pack_prompt(prompt), ttfa_s=0.2)
            self._ours.send(encode(submit))
        self._next += count

    def _read(self) -> None:
        while True:
            try:
                data = self._ours.recv(2**20)
            except BlockingIOError:
                return
            for body in self._frames.feed(data):
                message = decode_from_engine(body)
                self.chunks += isinstance(message, PcmChunk)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=128, help="rows of an LM step")
    parser.add_argument("--turns", type=int, default=1500, help="measured turns of the loop")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    arguments = parser.parse_args()
    bench = Bench(arguments.rows)
    for _ in range(4 * arguments.rows):
        bench.turn()
    gc.collect()
    gc.freeze()
    gc.disable()
    steps, chunks = bench.backend.row_steps(), bench.chunks
    profile = cProfile.Profile(time.thread_time) if arguments.profile else None
    spent: list[float] = []
    rows: list[int] = []
    references: list[float] = []
    for _ in range(arguments.turns):
        before = bench.backend.row_steps()
        spent.append(bench.turn(profile))
        rows.append(bench.backend.row_steps() - before)
        references.append(_reference_s())
    steps, chunks = bench.backend.row_steps() - steps, bench.chunks - chunks
    us = sum(spent) / steps * 1e6
    result = {
        "benchmark": "host_loop",
        "us_per_row_step": round(us, 2),
        "goal_us": GOAL_US,
        "within_goal": us <= GOAL_US,
        "us_best_tenth": round(_best_tenth(spent, rows), 2),
        "reference_us": round(sum(references) / len(references) * 1e6, 2),
        "rows": round(steps / arguments.turns, 1),
        "row_steps": steps,
        "chunks": chunks,
        "turn_ms_mean": round(sum(spent) / len(spent) * 1e3, 3),
        "turn_ms_p99": round(sorted(spent)[int(0.99 * len(spent))] * 1e3, 3),
        "profiled": arguments.profile,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cpu": platform.processor() or platform.machine(),
        "commit": _commit(),
    }
    print(json.dumps(result))
    if profile:
        _print_profile(profile, arguments.turns)


def _reference_s() -> float:
    begin = time.thread_time()
    sum(range(1000))
    return time.thread_time() - begin


def _print_profile(profile: cProfile.Profile, turns: int) -> None:
    stats = pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime")
    by_file: Counter[str] = Counter()
    for (file, _, _), (_, _, own_s, *_) in stats.stats.items():  # type: ignore[attr-defined]
        by_file["/".join(file.split("/")[-2:]).replace("~", "built in")] += own_s
    for file, own_s in by_file.most_common(15):
        print(f"{own_s / turns * 1e6:8.1f} us a turn  {file}")
    stats.print_stats(25)


def _best_tenth(spent: list[float], rows: list[int]) -> float:
    """Microseconds a row-step in the quickest tenth of the run: the figure of a quiet machine."""
    size = max(len(spent) // 10, 1)
    starts = range(0, len(spent) - size + 1, size)
    return min(sum(spent[i : i + size]) / sum(rows[i : i + size]) for i in starts) * 1e6


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
