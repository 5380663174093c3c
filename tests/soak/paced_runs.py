"""Three loads on a server with the paced model, and what they show."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.api.server_process import ServerProcess, poll
from tests.paced.pace import STEP_S
from tests.paced.plugin import path_with_paced
from tests.soak.paced_load import STALL_S, Heard, listen

MIB = 2**20
SPREAD_S = 2.0
"""The clients of a run come over this time, as they do in life."""


def paced_server(
    folder: Path, slots: int, *, refuse: bool = False, step_s: float = STEP_S
) -> ServerProcess:
    """Not ready yet."""
    settings = {
        "model": "paced",
        "engine": {"device": "cpu", "slots": slots, "deterministic": False},
        "policy": {"refuse": refuse},
        "api": {"slow_reader_s": 20},
    }
    return ServerProcess(folder, settings, environment=path_with_paced(folder, step_s))


@dataclass(frozen=True, slots=True)
class Concurrent:
    """complete: streams that were heard to their end. api_cores: processor seconds of the API
    process a second. lag_p99_s: the bucket's limit that 99 of 100 of its loop's delays stay under,
    while all ran."""

    complete: int
    stalled: int
    seconds: float
    api_cores: float
    lag_p99_s: float


async def concurrent(server: ServerProcess, streams: int, frames: int) -> Concurrent:
    """So many pcm streams in real time, all at once."""

    async def one(number: int) -> Heard:
        await asyncio.sleep(SPREAD_S * number / streams)
        return await listen(server, frames)

    api = psutil.Process(server.process.pid)
    tasks = [asyncio.create_task(one(number)) for number in range(streams)]
    await asyncio.to_thread(
        poll, "all run", lambda: server.metric("voxserve_requests_in_flight") == streams, 60
    )
    lags = await asyncio.to_thread(_lags, server)
    cpu, begin = _cpu_s(api), time.monotonic()
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    seconds = time.monotonic() - begin
    api_cores = (_cpu_s(api) - cpu) / seconds
    after = await asyncio.to_thread(_lags, server)
    heard = await asyncio.gather(*tasks)
    return Concurrent(
        complete=sum(one.complete for one in heard),
        stalled=sum(one.pauses_s > STALL_S for one in heard),
        seconds=seconds,
        api_cores=api_cores,
        lag_p99_s=_quantile(lags, after, 0.99),
    )


@dataclass(frozen=True, slots=True)
class Overloaded:
    """admitted, refused: of the requests sent. slowest_refusal_s: to its status line. unpolite:
    refusals that were no 503 with Retry-After. idle_s, after_s: time to first audio before the
    load and soon behind it."""

    admitted: int
    refused: int
    incomplete: int
    stalled: int
    unpolite: int
    slowest_refusal_s: float
    slowest_admitted_s: float
    idle_s: float
    after_s: float
    restarts: float


async def overload(
    server: ServerProcess, slots: int, frames: int, seconds: float, times: float = 3.0
) -> Overloaded:
    """Requests at `times` what the slots can carry, evenly spaced, whatever becomes of them."""
    idle = min([await listen(server, 10) for _ in range(5)], key=lambda heard: heard.ttfa_s)
    per_s = times * slots / (frames * STEP_S)
    tasks = []
    begin = time.monotonic()
    for number in range(round(per_s * seconds)):
        await asyncio.sleep(begin + number / per_s - time.monotonic())
        tasks.append(asyncio.create_task(listen(server, frames)))
    await asyncio.sleep(5.0)
    after = [await listen(server, 10) for _ in range(3)]
    heard = await asyncio.gather(*tasks)
    admitted = [one for one in heard if one.status == 200]
    refused = [one for one in heard if one.status != 200]
    return Overloaded(
        admitted=len(admitted),
        refused=len(refused),
        incomplete=sum(not one.complete for one in admitted),
        stalled=sum(one.pauses_s > STALL_S for one in admitted),
        unpolite=sum(one.status != 503 or not one.retry_after for one in refused),
        slowest_refusal_s=max((one.answered_s for one in refused), default=0.0),
        slowest_admitted_s=max((one.ttfa_s for one in admitted), default=0.0),
        idle_s=idle.ttfa_s,
        after_s=min(one.ttfa_s for one in after),
        restarts=await asyncio.to_thread(server.metric, "voxserve_engine_restarts_total"),
    )


@dataclass(frozen=True, slots=True)
class Slow:
    """normal_*: the readers that keep up. slow_complete: slow ones that got all their audio.
    mib_each: growth of both processes' memory at its largest, a slow reader."""

    normal: int
    normal_complete: int
    normal_stalled: int
    normal_ttfa_s: float
    idle_ttfa_s: float
    slow: int
    slow_complete: int
    mib_each: float


async def slow_readers(server: ServerProcess, slow: int, normal: int, frames: int) -> Slow:
    """Readers at half of real time beside normal ones."""
    idle = min([await listen(server, 10) for _ in range(5)], key=lambda heard: heard.ttfa_s)
    processes = [psutil.Process(server.process.pid), server.engine()]
    before = largest = _rss(processes)
    crawling = [asyncio.create_task(listen(server, frames, rate=0.5)) for _ in range(slow)]
    walking = []
    for _ in range(normal):
        walking.append(asyncio.create_task(listen(server, frames)))
        await asyncio.sleep(SPREAD_S / normal)
    tasks = [*crawling, *walking]
    while not all(task.done() for task in tasks):
        largest = max(largest, _rss(processes))
        await asyncio.sleep(0.2)
    slow_heard = [task.result() for task in crawling]
    heard = sorted((task.result() for task in walking), key=lambda one: one.ttfa_s)
    return Slow(
        normal=normal,
        normal_complete=sum(one.complete for one in heard),
        normal_stalled=sum(one.pauses_s > STALL_S for one in heard),
        normal_ttfa_s=heard[len(heard) // 2].ttfa_s,
        idle_ttfa_s=idle.ttfa_s,
        slow=slow,
        slow_complete=sum(one.complete for one in slow_heard),
        mib_each=(largest - before) / MIB / slow,
    )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _rss(processes: list[psutil.Process]) -> int:
    return sum(process.memory_info().rss for process in processes)


def _lags(server: ServerProcess) -> dict[float, float]:
    """How often the event loop was late by at most so many seconds."""
    return server.buckets("voxserve_loop_lag_seconds")


def _quantile(before: dict[float, float], after: dict[float, float], share: float) -> float:
    counts = {limit: after[limit] - before[limit] for limit in after}
    total = max(counts.values())
    return min(limit for limit, count in counts.items() if count >= share * total)
