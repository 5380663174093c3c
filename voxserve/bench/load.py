"""The open-loop measurement: warm-up, a burst, then a window for every rate and seed."""

import math
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from voxserve.bench.arrivals import orders, poisson
from voxserve.bench.pool import ClientPool
from voxserve.bench.records import Job, Record
from voxserve.bench.search import Search
from voxserve.bench.statistics import (
    GIVE_UP_SHARE,
    Figures,
    Window,
    figures,
)
from voxserve.bench.targets import Target
from voxserve.bench.workloads import Workload
from voxserve.errors import UnavailableError

BISECTION_STEP = 0.02
"""A bisection ends when its bracket is narrower than this share of its middle."""


class Load(msgspec.Struct, frozen=True):
    """What is sent.

    rates: requests a second, tried in ascending order. bisect: (low, high, tests) instead: the
    capacity is taken to lie between the two, which are themselves not tested. near: (guess, tests)
    instead: the capacity is looked for from a guess, to within `precision` of itself. budget_s:
    start no further rate that might end later than so many seconds after the first began.
    window_s: of each rate and seed. wait_s: for the last responses. warm_ups: one after the other;
    burst: at once; both are discarded. goal: the attainment that a bisection looks for. leave: the
    share of clients that go away in the middle of a window's speech.
    """

    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    window_s: float
    processes: int = 1
    bisect: tuple[float, float, int] | None = None
    near: tuple[float, int] | None = None
    precision: float = BISECTION_STEP
    budget_s: float | None = None
    goal: float = 0.9
    wait_s: float = 900.0
    warm_ups: int = 4
    burst: int = 64
    slo_ms: int = 200
    sample_rate_hz: int = 24_000
    leave: float = 0.0


Watch = Callable[[str, int, int, int], None]
"""Called with what is running, its requests sent, over, and in all."""


class Runner:
    """Sends windows at a target. headers: of every request."""

    def __init__(
        self,
        pool: ClientPool,
        target: Target,
        workload: Workload,
        load: Load,
        headers: dict[str, str],
        watch: Watch,
        *,
        keep_arrivals: bool = False,
    ) -> None:
        self._pool, self._target, self._workload, self._load = pool, target, workload, load
        self._headers, self._watch, self._keep_arrivals = headers, watch, keep_arrivals

    async def warm_up(self) -> None:
        """The warm-up requests and the burst. Raises UnavailableError if none of them completes."""
        load, seed = self._load, self._load.seeds[0]
        records: list[Record] = []
        if load.warm_ups:
            records += await self._send("warm-up", [0.0] * load.warm_ups, seed, 1)
        if load.burst:
            records += await self._send("burst", [0.0] * load.burst, seed)
        self._pool.forget()
        if records and not any(record.outcome == "completed" for record in records):
            first = records[0]
            raise UnavailableError(
                f"no warm-up request completed at {self._target.speech_url}: "
                f"{first.status} {first.error}"
            )

    async def window(self, rate: float, seed: int) -> Window:
        """All requests of one rate and seed, each waited for."""
        times = poisson(rate, self._load.window_s, seed)
        name = f"{rate:g} requests/s, seed {seed}"
        records = await self._send(name, times, seed, leave=self._load.leave)
        return Window(rate, seed, self._load.window_s, records)

    async def at_once(self, requests: int, in_flight: int, seed: int) -> Window:
        """So many requests, `in_flight` of them at any time; the window is as long as they take."""
        records = await self._send("all at once", [0.0] * requests, seed, in_flight)
        span_s = Window(0.0, seed, 0.0, records).span_s
        return Window(requests / span_s, seed, span_s, records)

    async def _send(
        self,
        name: str,
        times: list[float],
        seed: int,
        in_flight: int | None = None,
        leave: float = 0.0,
    ) -> list[Record]:
        """Records of one request for each time, in that order."""
        sent = orders(self._workload, self._target, times, seed, leave)
        job = Job(
            url=self._target.speech_url,
            transport=self._target.transport,
            headers=self._headers,
            orders=sent,
            start_s=0.0,
            wait_s=self._load.wait_s,
            sample_rate_hz=self._load.sample_rate_hz,
            frame_s=self._target.frame_s,
            in_flight=in_flight,
            keep_arrivals=self._keep_arrivals,
            shared=self._target.clip.fields if self._target.clip else {},
        )
        return await self._pool.run(
            job, lambda begun, over: self._watch(name, begun, over, len(sent))
        )


async def sweep(runner: Runner, load: Load) -> AsyncIterator[tuple[Figures, list[Window]]]:
    """The figures of each rate as soon as all of its seeds ran, with their windows.

    Ends early after a rate at which fewer than half of the requests got audio within a second.
    """
    rates = search_of(load)
    begin_s = time.monotonic()
    longest_s = 0.0
    for rate in rates or sorted(load.rates):
        rate_s = time.monotonic()
        if load.budget_s is not None and rate_s - begin_s + longest_s > load.budget_s and longest_s:
            return
        windows = [await runner.window(rate, seed) for seed in load.seeds]
        longest_s = max(longest_s, time.monotonic() - rate_s)
        point = figures(windows, load.slo_ms)
        yield point, windows
        if rates:
            rates.answer(point.attainment[load.slo_ms], point.goodput)
        elif point.within_1_s < GIVE_UP_SHARE:
            return


def search_of(load: Load) -> Search | None:
    """How the load looks for a capacity; None when its rates are given."""
    if load.bisect:
        low, high, tests = load.bisect
        middle = math.sqrt(low * high)
        return Search(
            near=middle,
            tests=tests,
            goal=load.goal,
            precision=load.precision,
            low=low,
            high=high,
        )
    if load.near:
        guess, tests = load.near
        return Search(near=guess, tests=tests, goal=load.goal, precision=load.precision)
    return None
