"""The CUDA backend: captured graphs over static buffers, replayed on streams of SM partitions."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from voxserve.engine.executables import Padding, key_of
from voxserve.engine.green_contexts import Partitions
from voxserve.engine.lanes import Arrays, Executable, Key, LaneDone, LaneQueue
from voxserve.engine.stages import Stages
from voxserve.kernels.tiles import fixed_tiles, on_sms
from voxserve.scheduler.launches import Lane, Launch, Stage

RING = 3
"""Host buffers an executable rotates through: two launches in flight and one being filled."""
_ALIGN_BYTES = 16
_WARM_RUNS = 2


@dataclass(frozen=True, slots=True)
class _Field:
    offset: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]


class Block:
    """The inputs of one executable in one buffer on the device, so that they take one copy.

    tensors: views into it by name, what the graph reads.
    """

    def __init__(self, example: Arrays, device: torch.device) -> None:
        self._fields: dict[str, _Field] = {}
        size = 0
        for name, array in example.items():
            self._fields[name] = _Field(size, array.dtype, array.shape)
            size += -(-array.nbytes // _ALIGN_BYTES) * _ALIGN_BYTES
        self._device = torch.zeros(size, dtype=torch.uint8, device=device)
        self._pinned = [torch.zeros(size, dtype=torch.uint8).pin_memory() for _ in range(RING)]
        self._host = [
            {name: _view(pinned.numpy(), field) for name, field in self._fields.items()}
            for pinned in self._pinned
        ]
        self.tensors = {name: self._tensor(field) for name, field in self._fields.items()}
        self._turn = 0

    def fill(self, inputs: Arrays) -> None:
        """Copy arrays of the example's shapes in, on the current stream; returns at once."""
        self._turn = (self._turn + 1) % RING
        for name, array in self._host[self._turn].items():
            array[...] = inputs[name]
        self._device.copy_(self._pinned[self._turn], non_blocking=True)

    def _tensor(self, field: _Field) -> torch.Tensor:
        dtype = torch.from_numpy(np.zeros(1, field.dtype)).dtype
        count = int(np.prod(field.shape))
        flat = self._device[field.offset : field.offset + count * field.dtype.itemsize]
        return flat.view(dtype).view(field.shape)


class CudaExecutable:
    """One stage at one bucket, captured on the stream of its partition."""

    def __init__(self, key: Key, block: Block, outputs: Mapping[str, torch.Tensor]) -> None:
        self.key = key
        self.graph = torch.cuda.CUDAGraph()
        self.block = block
        self.outputs = dict(outputs)
        self._pinned = [
            {name: torch.empty_like(t, device="cpu").pin_memory() for name, t in outputs.items()}
            for _ in range(RING)
        ]
        self._turn = 0

    def replay(self, inputs: Arrays) -> Arrays:
        """Queue copies and graph on the current stream. The returned arrays fill up meanwhile and
        stay untouched for the next RING - 1 replays."""
        self.block.fill(inputs)
        self.graph.replay()
        self._turn = (self._turn + 1) % RING
        pinned = self._pinned[self._turn]
        for name, tensor in self.outputs.items():
            pinned[name].copy_(tensor, non_blocking=True)
        return {name: tensor.numpy() for name, tensor in pinned.items()}


class CudaLane:
    """One stream. A launch has run when the event behind it has; polled, never waited for."""

    def __init__(self, name: Lane, stream: torch.cuda.Stream, padding: Padding) -> None:
        self.name = name
        self._stream = stream
        self._padding = padding
        self._running: deque[tuple[Launch, Arrays, float, torch.cuda.Event]] = deque()
        self._events = deque(torch.cuda.Event() for _ in range(RING))
        self._free_at_s = 0.0

    def launch(self, launch: Launch, executable: Executable, inputs: Arrays) -> None:
        assert isinstance(executable, CudaExecutable)
        key, queued_s = executable.key, time.monotonic()
        event = self._events.popleft()
        with torch.cuda.stream(self._stream):
            outputs = executable.replay(self._padding.pad(inputs, key.rows))
            event.record(self._stream)
        self._running.append((launch, outputs, queued_s, event))

    def poll(self) -> LaneDone | None:
        """Raises what CUDA reports: its errors outlive the launch, so the engine must end."""
        if not self._running or not self._running[0][3].query():
            return None
        launch, outputs, queued_s, event = self._running.popleft()
        self._events.append(event)
        begin_s, self._free_at_s = max(queued_s, self._free_at_s), time.monotonic()
        return LaneDone(launch, outputs, begin_s, self._free_at_s)

    def close(self) -> None:
        self._stream.synchronize()


class CudaBackend:
    """Three streams over one set of stages; `build` every executable before serving.

    LM launches replay on the LM's partition whatever they were captured on, so they run in order;
    a graph keeps the SMs of the stream that it was captured on, and tiles chosen for them.
    fixed: choose the same tiles whatever the rows and SMs. partitions: the streams, and the SMs
    behind them. executables: what `warm` has captured so far.
    """

    polls = True

    def __init__(
        self,
        stages: Stages,
        partitions: Partitions,
        padding: Padding,
        device: torch.device,
        *,
        fixed: bool = False,
    ) -> None:
        self.stages = stages
        self._device = device
        self._fixed = fixed
        self._capture_on = {
            "lm": partitions.lm,
            "codec": partitions.codec,
            "whole": partitions.whole,
        }
        self.partitions = partitions
        self._lanes = {
            Lane.LM: CudaLane(Lane.LM, partitions.lm, padding),
            Lane.BACKGROUND: CudaLane(Lane.BACKGROUND, partitions.codec, padding),
            Lane.URGENT: CudaLane(Lane.URGENT, partitions.urgent, padding),
        }
        self.lanes: Mapping[Lane, LaneQueue] = self._lanes
        self._pools = {lane: torch.cuda.graph_pool_handle() for lane in Lane}
        self.executables: dict[Key, CudaExecutable] = {}

    def executable(self, launch: Launch) -> CudaExecutable:
        return self.executables[key_of(launch)]

    def warm(self, key: Key, inputs: Arrays) -> float:
        """Capture `key` and replay it once. Returns the replay's seconds.

        inputs: of the bucket's whole shape, naming spare rows only. What was built so far must not
        be running.
        """
        with on_sms(self.partitions.sms[key.partition]), fixed_tiles(self._fixed):
            self.executables[key] = executable = self._capture(key, inputs)
        torch.cuda.synchronize()
        begin_s = time.monotonic()
        with torch.cuda.stream(self._stream(key)):
            executable.replay(inputs)
        torch.cuda.synchronize()
        return time.monotonic() - begin_s

    def _stream(self, key: Key) -> torch.cuda.Stream:
        if key.stage is Stage.CODEC and key.partition == "whole":
            return self.partitions.urgent
        return self._capture_on[key.partition]

    def _capture(self, key: Key, inputs: Arrays) -> CudaExecutable:
        lane = Lane.LM
        if key.stage is Stage.CODEC:
            lane = Lane.BACKGROUND if key.partition == "codec" else Lane.URGENT
        stream = self._stream(key)
        block = Block(inputs, self._device)
        block.fill(inputs)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(_WARM_RUNS):
                outputs = self.stages.compute(key.stage, block.tensors)
        torch.cuda.synchronize()
        executable = CudaExecutable(key, block, outputs)
        with torch.cuda.graph(executable.graph, pool=self._pools[lane], stream=stream):
            executable.outputs = self.stages.compute(key.stage, block.tensors)
        return executable

    def on_done(self, wake: Callable[[], None]) -> None:
        """Nobody wakes the loop; it polls while a lane is busy."""

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.close()


def _view(buffer: np.ndarray, field: _Field) -> np.ndarray:
    count = int(np.prod(field.shape))
    flat = buffer[field.offset : field.offset + count * field.dtype.itemsize]
    return flat.view(field.dtype).reshape(field.shape)
