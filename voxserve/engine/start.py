"""From a configuration to a warm engine: load, divide the memory, run every executable once."""

import logging
import os
import threading
from collections import Counter
from pathlib import Path

import torch

from voxserve.bench import profile_file
from voxserve.checkpoints import find
from voxserve.config import Config
from voxserve.engine.build import Report, build, target_of
from voxserve.engine.channel import Channel, ChannelClosed
from voxserve.engine.loop import Loop
from voxserve.engine.memory import Part, describe, weights_bytes
from voxserve.engine.threads import threads_of, usable_cores
from voxserve.engine.trace import Trace
from voxserve.errors import InvalidRequestError
from voxserve.plugin import HostLogic, SpeechModel
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.estimates import Bucket, Estimates
from voxserve.wire import Warming

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


def load(config: Config, report: Report) -> tuple[HostLogic, SpeechModel]:
    """The model's two halves. Raises CheckpointError."""
    target = target_of(config.engine)
    report("loading weights", 0, 1)  # a download, if it takes one, belongs to it
    plugin, checkpoint = find(config.model, dummy=config.load_format == "dummy")
    threads = threads_of(config.engine, target.device, usable_cores())
    torch.set_num_threads(threads)
    _log.info("CPU threads inside one operation: %d", threads)
    model = plugin.load(checkpoint, target)
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

    padded: compute padding rows on a CPU as well, which it has no reason to but for a test.
    Raises ValueError when the memory does not suffice.
    """
    built = build(config, host.spec, model, padded=padded)
    _log_memory(describe(built.spec, built.sizes, weights_bytes(model)))
    measured = profiled(config.engine.profile, config.model)
    estimates = Estimates(built.warm_up(report) | measured)
    settings, sizes = config.engine, built.sizes
    trace = Trace(settings.trace, os.getpid()) if settings.trace else None
    scheduler = Scheduler(built.shape, built.policy, estimates)
    logic = host.steps(sizes.slots)
    return Loop(scheduler, logic, built.spec, sizes, built.backend, channel, trace=trace)


def profiled(path: Path | None, model: str) -> dict[Bucket, float]:
    """Run times that a profile holds. Raises ValueError when it is none, or of another model."""
    if path is None:
        return {}
    try:
        profile = profile_file.read(path)
    except InvalidRequestError as error:
        raise ValueError(f"engine.profile: {error}") from error
    if profile.model != model:
        raise ValueError(f"engine.profile: {path} is of {profile.model}, and {model} is served")
    return profile.estimates()


def _log_memory(parts: list[Part]) -> None:
    by_kind: Counter[str] = Counter()
    for part in parts:
        by_kind[part.name.split(" state ")[0]] += part.bytes
    sizes = ", ".join(f"{kind} {size / 1e6:.1f} MB" for kind, size in by_kind.items())
    _log.info("memory: %s", sizes)
