"""The losses of a run: their means over some updates, printed and kept in a JSON file."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor


class Journal:
    """every: updates a line. Sums stay on the device until a line is due."""

    def __init__(self, file: Path, every: int) -> None:
        self.file, self.every = file, every
        self.start, self.step = time.monotonic(), 0
        self._sums: dict[str, Tensor] = {}
        self._lines: list[dict[str, float]] = []

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    def add(self, losses: Mapping[str, Tensor]) -> bool:
        """Count an update. Returns whether a line is due."""
        for name, value in losses.items():
            self._sums[name] = self._sums.get(name, 0) + value.detach().clone()
        self.step += 1
        return self.step % self.every == 0

    def line(self, **more: float) -> None:
        means = {k: round(float(v) / self.every, 4) for k, v in self._sums.items()}
        self._lines.append({"step": self.step, "seconds": round(self.seconds, 1), **means, **more})
        self._sums = {}
        self.file.write_text(json.dumps(self._lines))
        if self.step % (10 * self.every) == 0:
            print(json.dumps(self._lines[-1]), flush=True)
