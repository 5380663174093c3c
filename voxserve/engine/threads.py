"""How many CPU threads a lane uses inside one operation."""

import os
from pathlib import Path

from voxserve.config import EngineConfig

CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""In a container: microseconds of CPU time, or `max`, and of the period they are for."""


def threads_of(config: EngineConfig, device: str, cores: float) -> int:
    """`engine.threads`, where `auto` goes by the cores that this process may use.

    Each lane has so many, so a quarter of the cores is enough, and small operations gain nothing
    from more than four. On a GPU there is nothing to divide. Rounding depends on the number, so in
    deterministic mode it is 1 on every machine.
    """
    if config.threads != "auto":
        return config.threads
    if device != "cpu" or config.deterministic:
        return 1
    return 4 if cores >= 16 else 2 if cores >= 8 else 1


def usable_cores(limit: Path = CPU_LIMIT) -> float:
    """CPU cores that this process may keep busy: those it may run on, up to its limit."""
    try:
        cores = float(len(os.sched_getaffinity(0)))
    except AttributeError:  # macOS has no such call
        cores = float(os.cpu_count() or 1)
    try:
        time_us, period_us = limit.read_text().split()
    except OSError:
        return cores
    return cores if time_us == "max" else min(cores, int(time_us) / int(period_us))
