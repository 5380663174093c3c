"""How long a launch will take: a running quantile of what its like took before."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping

from voxserve.scheduler.launches import Lane, Launch, Stage

Bucket = tuple[Lane, Stage, int, int]
"""Lane, stage, rows and units of an executable. The lane stands for the partition it runs on."""

WINDOW = 32
QUANTILE = 0.9


class Quantile:
    """The `QUANTILE` of the last `WINDOW` values as `value`, and their mean as `mean`."""

    def __init__(self, first: float | None = None) -> None:
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        self._sum = 0.0
        self.value = self.mean = 0.0
        if first is not None:
            self.add(first)

    def add(self, value: float) -> None:
        if len(self._recent) == WINDOW:
            oldest = self._recent.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._sum -= oldest
        self._recent.append(value)
        insort(self._sorted, value)
        self._sum += value
        self.mean = self._sum / len(self._recent)
        self.value = self._sorted[int(QUANTILE * (len(self._sorted) - 1) + 0.5)]

    def __len__(self) -> int:
        return len(self._recent)


class Estimates:
    """Estimated seconds by bucket.

    seed: what is known beforehand, from a profile or from the warm-up runs. A bucket that was never
    seen takes the figure of its nearest neighbour in the same stage, and 0.0 where there is none:
    an engine that knows nothing refuses nothing.
    """

    def __init__(self, seed: Mapping[Bucket, float] | None = None) -> None:
        self._measured = {bucket: Quantile(seconds) for bucket, seconds in (seed or {}).items()}
        self._borrowed: dict[Bucket, Quantile] = {}

    def record(self, launch: Launch, run_s: float) -> None:
        """Learn from a finished launch."""
        bucket = (launch.lane, launch.stage, launch.rows, launch.units)
        quantile = self._measured.get(bucket)
        if quantile is None:
            quantile = self._measured[bucket] = Quantile()
            self._borrowed.clear()
        quantile.add(run_s)

    def seconds(self, lane: Lane, stage: Stage, rows: int, units: int) -> float:
        """What a launch of that bucket will take."""
        bucket = (lane, stage, rows, units)
        quantile = self._measured.get(bucket)
        if quantile is not None:
            return quantile.value
        neighbour = self._borrowed.get(bucket)
        if neighbour is None:
            neighbour = self._borrowed[bucket] = self._nearest(bucket)
        return neighbour.value

    def _nearest(self, bucket: Bucket) -> Quantile:
        """The smallest known bucket that holds this one, else the largest that is known."""
        lane, stage, rows, units = bucket
        known = [b for b in self._measured if b[1] == stage]
        known = [b for b in known if b[0] == lane] or known
        if not known:
            return Quantile()
        holding = [b for b in known if b[2] >= rows and b[3] >= units]
        chosen = min(holding, key=lambda b: b[2:]) if holding else max(known, key=lambda b: b[2:])
        return self._measured[chosen]
