"""From a configuration to a warm engine: load, divide the memory, run every executable once."""

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable

import torch

from voxserve.checkpoints import find
from voxserve.config import Config, EngineConfig
from voxserve.engine.channel import Channel, ChannelClosed
from voxserve.engine.cpu import CpuBackend
from voxserve.engine.executables import Padding, engine_policy, keys_of, shape_of
from voxserve.engine.lanes import Key
from voxserve.engine.loop import Loop
from voxserve.engine.memory import (
    Part,
    Sizes,
    allocate,
    codes_table,
    describe,
    sizes_for,
    weights_bytes,
)
from voxserve.engine.stages import Stages
from voxserve.engine.trace import Trace
from voxserve.plugin import HostLogic, ModelSpec, SpeechModel
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.estimates import Bucket, Estimates
from voxserve.scheduler.launches import Lane, Stage
from voxserve.wire import Warming

Report = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

_log = logging.getLogger(__name__)
_REPEAT_S = 1.0


class Announcer:
    """Tells the API process how far the start is, at every step and at least once a second.

    Loading and compiling block for long, so a thread of its own repeats the last message.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._last: Warming | None = None
        self._gone = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="announcer", daemon=True)
        self._thread.start()

    def report(self, what: str, done: int, total: int) -> None:
        """Raises ChannelClosed when the API process is gone."""
        self._last = Warming(what, done, total)
        self._send()
        if self._gone:
            raise ChannelClosed

    def stop(self) -> None:
        """Leave the channel to the loop."""
        self._stop.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._stop.wait(_REPEAT_S):
            self._send()

    def _send(self) -> None:
        with self._lock:
            if self._last is None or self._channel.backlog:
                return
            self._channel.send(self._last)
            try:
                self._channel.flush()
            except ChannelClosed:
                self._gone = True


def device_of(config: EngineConfig) -> tuple[str, str]:
    """Torch names of the device and of the dtype in use.

    Raises ValueError for a device that this build has no backend for.
    """
    if config.device == "cuda":
        raise ValueError("engine.device is cuda, but this version has a backend for cpu alone")
    return "cpu", "float32" if config.dtype == "auto" else config.dtype


def load(config: Config, report: Report) -> tuple[HostLogic, SpeechModel]:
    """The model's two halves. Raises CheckpointError."""
    device, dtype = device_of(config.engine)
    report("loading weights", 0, 1)  # a download, if it takes one, belongs to it
    plugin, checkpoint = find(config.model, dummy=config.load_format == "dummy")
    torch.set_num_threads(config.engine.threads)
    model = plugin.load(checkpoint, device, dtype)
    report("loading weights", 1, 1)
    return plugin.host(checkpoint), model


def assemble(
    config: Config,
    host: HostLogic,
    model: SpeechModel,
    channel: Channel,
    report: Report,
    *,
    padded: bool = False,
) -> Loop:
    """A loop whose every executable has run once.

    padded: compute padding rows as well, which a CPU has no reason to but for a test.
    Raises ValueError when the memory does not suffice.
    """
    settings, spec = config.engine, host.spec
    device, dtype = device_of(settings)
    sizes = sizes_for(spec, settings, dtype)
    policy = engine_policy(config.policy.policy(), deterministic=settings.deterministic)
    shape = shape_of(spec, policy, sizes.slots, tuple(sizes.pages.values()))
    _log_memory(describe(spec, sizes, weights_bytes(model)))
    stages = Stages(model, spec, allocate(spec, sizes, device), codes_table(spec, sizes, device))
    padding = Padding(sizes.slots, sizes.clips, sizes.pages)
    keys = keys_of(shape)
    backend = CpuBackend(
        stages,
        spec,
        keys,
        threads=settings.threads,
        deterministic=settings.deterministic,
        padding=padding if padded else None,
    )
    estimates = Estimates(_warm_up(backend, keys, padding, spec, sizes, report))
    trace = Trace(settings.trace, os.getpid()) if settings.trace else None
    scheduler = Scheduler(shape, policy, estimates)
    return Loop(scheduler, host.steps(sizes.slots), spec, sizes, backend, channel, trace=trace)


def _log_memory(parts: list[Part]) -> None:
    by_kind: Counter[str] = Counter()
    for part in parts:
        by_kind[part.name.split(" state ")[0]] += part.bytes
    sizes = ", ".join(f"{kind} {size / 1e6:.1f} MB" for kind, size in by_kind.items())
    _log.info("memory: %s", sizes)


def _warm_up(
    backend: CpuBackend,
    keys: list[Key],
    padding: Padding,
    spec: ModelSpec,
    sizes: Sizes,
    report: Report,
) -> dict[Bucket, float]:
    """Run every executable once on the spare rows. Returns the seconds that each took.

    Partitions are one and the same on a CPU, so what differs in nothing else runs only once.
    """
    seconds: dict[Bucket, float] = {}
    by_shape: dict[tuple[Stage, int, int], list[Key]] = {}
    for key in keys:
        by_shape.setdefault((key.stage, key.rows, key.units), []).append(key)
    for number, same in enumerate(by_shape.values()):
        report("warming up", number, len(by_shape))
        inputs = padding.blank(same[0], spec, sizes.table_pages)
        run_s = backend.warm(same[0], inputs)
        seconds |= {(_lane_of(key), key.stage, key.rows, key.units): run_s for key in same}
    report("warming up", len(by_shape), len(by_shape))
    return seconds


def _lane_of(key: Key) -> Lane:
    if key.stage is not Stage.CODEC:
        return Lane.LM
    return Lane.BACKGROUND if key.partition == "codec" else Lane.URGENT
