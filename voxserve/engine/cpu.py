"""The CPU backend: every lane is a worker thread, so the lanes really run side by side."""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from voxserve.engine.executables import Padding, key_of
from voxserve.engine.lanes import Arrays, Executable, Key, LaneDone, LaneQueue
from voxserve.engine.stages import Stages
from voxserve.plugin import ModelSpec
from voxserve.scheduler.launches import Lane, Launch, Stage

_log = logging.getLogger(__name__)
_Timed = tuple[Arrays, float, float]


@dataclass(frozen=True, slots=True)
class CpuExecutable:
    """A stage at one bucket. It computes the rows it is given, no padding, unless `padding` is set
    (tests prove with it that padding rows change nothing).

    deterministic: every row runs by itself in its own smallest bucket, so that its results depend
    on nothing but itself; a batch of n rows then takes as long as n batches of one.
    """

    key: Key
    stages: Stages
    spec: ModelSpec
    padding: Padding | None = None
    deterministic: bool = False

    def run(self, inputs: Arrays) -> Arrays:
        """Run in the calling thread; raises what the model raises."""
        if not self.deterministic:
            if self.padding:
                inputs = self.padding.pad(inputs, self.key.rows)
            return self.stages.run(self.key.stage, inputs)
        count = len(next(iter(inputs.values())))
        rows = [{name: array[i : i + 1] for name, array in inputs.items()} for i in range(count)]
        outputs = [self.stages.run(self.key.stage, self._shrink(row)) for row in rows]
        return {name: _stack([output[name] for output in outputs]) for name in outputs[0]}

    def _shrink(self, row: Arrays) -> Arrays:
        """One row's inputs at the smallest bucket that holds it."""
        stage, spec = self.key.stage, self.spec
        if stage is Stage.DECODE:
            return row
        length = int(row["lengths"][0])
        if stage is Stage.PREFILL:
            tokens = _smallest(spec.prefill_tokens, length)
            return {**row, "rows": np.ascontiguousarray(row["rows"][:, :tokens])}
        if stage is Stage.CODEC:
            frames = spec.left_frames + _smallest(spec.frame_buckets, length) + spec.ahead_frames
            return {**row, "steps": np.ascontiguousarray(row["steps"][:, :frames])}
        rate = spec.clip_rate_hz or 0
        samples = rate * _smallest(spec.encode_seconds, -(-length // rate))
        return {**row, "audio": np.ascontiguousarray(row["audio"][:, :samples])}


class CpuLane:
    """One worker thread that runs its launches in order."""

    def __init__(self, name: Lane, threads: int) -> None:
        self.name = name
        self._running: deque[tuple[Launch, Future[_Timed]]] = deque()
        self._wake: Callable[[], None] = _nobody
        self._worker = ThreadPoolExecutor(
            max_workers=1,
            thread_name_prefix=f"lane-{name.name.lower()}",
            initializer=torch.set_num_threads,
            initargs=(threads,),
        )

    def on_done(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def launch(self, launch: Launch, executable: Executable, inputs: Arrays) -> None:
        assert isinstance(executable, CpuExecutable)
        copied = {name: np.array(array) for name, array in inputs.items()}
        future = self._worker.submit(_timed, executable, copied)
        self._running.append((launch, future))
        future.add_done_callback(lambda _: self._wake())

    def run(self, executable: CpuExecutable, inputs: Arrays) -> float:
        """Run it on the worker thread and wait; seconds it took."""
        _, begin_s, end_s = self._worker.submit(_timed, executable, dict(inputs)).result()
        return end_s - begin_s

    def poll(self) -> LaneDone | None:
        if not self._running or not self._running[0][1].done():
            return None
        launch, future = self._running.popleft()
        error = future.exception()
        if error is None:
            return LaneDone(launch, *future.result())
        _log.error("a %s launch failed", launch.stage.name.lower(), exc_info=error)
        now = time.monotonic()
        return LaneDone(launch, {}, now, now, error=repr(error))

    def close(self) -> None:
        self._worker.shutdown(wait=True, cancel_futures=True)


class CpuBackend:
    """Three worker threads over one set of stages.

    keys: the executables to build; asking for any other raises KeyError. threads: CPU threads that
    a lane uses inside one operation. padding: see `CpuExecutable`.
    """

    polls = False

    def __init__(
        self,
        stages: Stages,
        spec: ModelSpec,
        keys: list[Key],
        *,
        threads: int = 1,
        deterministic: bool = False,
        padding: Padding | None = None,
    ) -> None:
        self._lanes = {lane: CpuLane(lane, threads) for lane in Lane}
        self.lanes: Mapping[Lane, LaneQueue] = self._lanes
        self._executables = {
            key: CpuExecutable(key, stages, spec, padding, deterministic) for key in keys
        }

    def executable(self, launch: Launch) -> CpuExecutable:
        return self._executables[key_of(launch)]

    def warm(self, key: Key, inputs: Arrays) -> float:
        """Run one executable on its lane's thread. Returns its seconds; raises what it raises."""
        lane = Lane.BACKGROUND if key.stage is Stage.CODEC else Lane.LM
        return self._lanes[lane].run(self._executables[key], inputs)

    def on_done(self, wake: Callable[[], None]) -> None:
        for lane in self._lanes.values():
            lane.on_done(wake)

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.close()


def _timed(executable: CpuExecutable, inputs: Arrays) -> _Timed:
    begin_s = time.monotonic()
    outputs = executable.run(inputs)
    return outputs, begin_s, time.monotonic()


def _nobody() -> None:
    """Stands in for the wake call until there is a loop to wake."""


def _smallest(buckets: tuple[int, ...], size: int) -> int:
    return min(bucket for bucket in buckets if bucket >= size)


def _stack(rows: list[np.ndarray]) -> np.ndarray:
    """Rows [1, n] of different n as one array, short ones filled up with zeros."""
    width = max(row.shape[1] for row in rows)
    return np.concatenate([np.pad(row, ((0, 0), (0, width - row.shape[1]))) for row in rows])
