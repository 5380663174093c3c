"""What the engine counts for `wire.Stats`."""

from collections import Counter

from voxserve.engine.lanes import LaneDone
from voxserve.engine.pages import Pages
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.launches import Lane, Launch, Stage
from voxserve.wire import Stats


class Counters:
    """Counts launches, the lanes' busy time and the age of what is in flight."""

    def __init__(self, slots: int, now: float) -> None:
        self._slots = slots
        self._since_s = now
        self._busy_s = dict.fromkeys(Lane, 0.0)
        self._started_s: dict[int, float] = {}
        self._dispatches: Counter[str] = Counter()
        self._codec_rows: Counter[str] = Counter()
        self._longest_turn_s = 0.0

    @property
    def in_flight(self) -> int:
        return len(self._started_s)

    def started(self, launch: Launch, now: float) -> None:
        self._started_s[launch.number] = now
        if launch.stage is Stage.CODEC:
            lane = launch.lane.name.lower()
            self._dispatches[f"{lane}/{launch.reason}"] += 1
            self._codec_rows[f"{lane}/{len(launch.requests)}"] += 1

    def done(self, done: LaneDone) -> None:
        del self._started_s[done.launch.number]
        self._busy_s[done.launch.lane] += done.end_s - done.begin_s

    def turn(self, seconds: float) -> None:
        self._longest_turn_s = max(self._longest_turn_s, seconds)

    def take(self, scheduler: Scheduler, pages: dict[str, Pages], now: float) -> Stats:
        """The gauges now, and the shares since the last call."""
        period = max(now - self._since_s, 1e-9)
        oldest = min(self._started_s.values(), default=now)
        stats = Stats(
            slots_free=scheduler.slots_free,
            slots_total=self._slots,
            waiting=scheduler.waiting,
            pages={name: (pool.free, pool.total) for name, pool in pages.items()},
            lane_busy={
                lane.name.lower(): min(busy / period, 1.0) for lane, busy in self._busy_s.items()
            },
            dispatches=dict(self._dispatches),
            codec_rows=dict(self._codec_rows),
            prefills=scheduler.prefills,
            step_age_s=now - oldest,
            loop_s=self._longest_turn_s,
        )
        self._since_s = now
        self._busy_s = dict.fromkeys(Lane, 0.0)
        self._longest_turn_s = 0.0
        return stats
