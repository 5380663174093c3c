"""Measures what Python's garbage collector costs the event loop."""

import gc
import time

from prometheus_client import Histogram


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
