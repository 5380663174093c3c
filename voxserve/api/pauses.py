"""Measures what holds the event loop up: Python's garbage collector, and everything together."""

import asyncio
import gc
import itertools
import time

from prometheus_client import Gauge, Histogram

LAG_STEP_S = 0.05
TASKS_EVERY = 20


async def watch_lag(seconds: Histogram, tasks: Gauge) -> None:
    """Observe, 20 times a second for ever, how late the event loop wakes a task that is due.

    tasks: set once a second to how many there are.
    """
    for turn in itertools.count():
        if turn % TASKS_EVERY == 0:
            tasks.set(len(asyncio.all_tasks()))
        due = time.monotonic() + LAG_STEP_S
        await asyncio.sleep(LAG_STEP_S)
        seconds.observe(max(0.0, time.monotonic() - due))


class GcPauses:
    """Observes every collection from `install` to `remove`."""

    def __init__(self, seconds: Histogram) -> None:
        self._seconds = seconds
        self._begin = 0.0

    def install(self) -> None:
        gc.callbacks.append(self._on_collection)

    def remove(self) -> None:
        gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begin = time.perf_counter()
        else:
            self._seconds.observe(time.perf_counter() - self._begin)
