"""How far a run is: by its own clock, or in as many updates as the runs beside it make.

Runs that are to be compared measure their speed over some early updates, tell each other through
files in one folder, and all stop after the updates that the slowest can make until the given time.
"""

import argparse
import json
import time
from pathlib import Path

from journal import Journal

PATIENCE_S = 60
ROOM = 0.97
"""Share of the measured speed to count on."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--together", type=Path, help="folder that runs to be compared share")
    parser.add_argument("--runs", type=int, default=1, help="runs that share it")
    parser.add_argument("--name", default="run", help="this run's name among them")
    parser.add_argument("--until", type=float, default=0, help="UNIX time when all should be done")


class Pace:
    """first, last: the updates between which the speed is measured when runs go together; until
    `last` the share of the run that is over counts as 0. Both should be multiples of the journal's
    lines, which wait for the device."""

    def __init__(self, args: argparse.Namespace, journal: Journal, first: int, last: int) -> None:
        self._args, self._journal = args, journal
        self._first, self._last = first, last
        self._began, self._total = 0.0, 0

    def share(self) -> float:
        """How much of the run is over, 0 ... 1; to be asked once before every update."""
        args, step = self._args, self._journal.step
        if args.together is None:
            return min(1.0, self._journal.seconds / args.seconds)
        if time.time() > args.until + 5:
            return 1.0
        if step == self._first:
            self._began = time.monotonic()
        if step < self._last:
            return 0.0
        if not self._total:
            rate = (self._last - self._first) / (time.monotonic() - self._began)
            self._total = self._agree(rate)
        return min(1.0, (step - self._last) / (self._total - self._last))

    def _agree(self, rate: float) -> int:
        """Updates in all. Every run that comes here in time computes the same."""
        args = self._args
        args.together.mkdir(parents=True, exist_ok=True)
        held = args.together / f"{args.name}.tmp"
        held.write_text(json.dumps({"rate": rate, "time": time.time()}))
        held.replace(held.with_suffix(".json"))
        late = time.monotonic() + PATIENCE_S
        while len(found := list(args.together.glob("*.json"))) < args.runs:
            if time.monotonic() > late:
                break
            time.sleep(0.1)
        told = [json.loads(path.read_text()) for path in found]
        left = args.until - max(one["time"] for one in told)
        more = ROOM * left * min(one["rate"] for one in told)
        print(f"{rate:.2f} updates a second, {len(found)} runs, {more:.0f} more", flush=True)
        return self._last + max(1, int(more))
