"""`make soak`: a mixed load for some time, then clients that leave, then loads in real time.

`python -m tests.soak --seconds N --drops N --cancels N --paced-seconds N`; 0 leaves a part out.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.api.server_process import ServerProcess
from tests.soak.gauges import held
from tests.soak.leavers import cancels, drops
from tests.soak.load import load
from tests.soak.paced_runs import concurrent, overload, paced_server, slow_readers
from tests.soak.priority import first_served

WARM_S = 60.0
ROUND_S = 60.0
WARM_DROPS = 500
MAX_GROWTH_MIB = 20.0
MAX_CANCEL_S = 0.1
REAL_TIME_STEP_S = 0.07
"""A little less than the frame of 80 ms that it makes."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--drops", type=int, default=10_000)
    parser.add_argument("--cancels", type=int, default=10_000)
    parser.add_argument("--paced-seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    tell(seed=chosen.seed)
    with tempfile.TemporaryDirectory() as folder:
        with ServerProcess(Path(folder)) as server:
            server.wait_ready()
            if chosen.seconds:
                mixed(server, chosen.seconds, chosen.clients, chosen.seed)
            if chosen.drops:
                leave(server, chosen.drops, chosen.seed)
            if chosen.cancels:
                change_minds(server, chosen.cancels, chosen.seed)
        if chosen.paced_seconds:
            paced(Path(folder), chosen.paced_seconds)


def mixed(server: ServerProcess, seconds: float, clients: int, seed: int) -> None:
    """Clients of every kind at once."""
    asyncio.run(load(server, min(WARM_S, seconds / 4), clients, seed))
    ends_at = time.monotonic() + seconds
    times: list[float] = []
    number = 0
    with nothing_left(server):
        while (left_s := ends_at - time.monotonic()) > 0:
            number += 1
            report = asyncio.run(load(server, min(ROUND_S, left_s), clients, seed + number))
            times += report.cancel_s
            tell(counts=report.counts, problems=report.problems[:10], held=asdict(held(server)))
            assert not report.problems
    times.sort()
    tell(cancels=len(times), p99_s=times[int(0.99 * len(times))] if times else None)


def leave(server: ServerProcess, count: int, seed: int) -> None:
    """Clients that drop their connection."""
    asyncio.run(drops(server, WARM_DROPS, seed))
    begin = time.monotonic()
    with nothing_left(server):
        asyncio.run(drops(server, count, seed + 1))
    tell(drops=count, seconds=round(time.monotonic() - begin, 1))


def change_minds(server: ServerProcess, count: int, seed: int) -> None:
    """Clients that cancel what is being spoken."""
    asyncio.run(cancels(server, WARM_DROPS, seed))
    begin = time.monotonic()
    with nothing_left(server):
        done = asyncio.run(cancels(server, count, seed + 1))
    quantiles = {share: round(done.quantile_s(share), 4) for share in (0.5, 0.99, 1)}
    seconds = round(time.monotonic() - begin, 1)
    tell(cancels=count, after_audio=done.heard, answer_s=quantiles, seconds=seconds)
    assert done.stale == [], done.stale[:5]
    assert len(done.answer_s) == count
    if quantiles[0.99] > MAX_CANCEL_S:
        print(f"the goal for cancels is {MAX_CANCEL_S} s; a busy machine misses it")


def paced(folder: Path, seconds: float) -> None:
    """Two hundred streams in real time; three times as many requests as fit; slow readers."""
    with first_served() as granted:
        tell(first_served=granted)
        with paced_server(folder, slots=200, step_s=REAL_TIME_STEP_S) as server:
            server.wait_ready()
            streams = asyncio.run(concurrent(server, streams=200, frames=round(seconds / 0.08)))
            tell(**asdict(streams))
        with paced_server(folder, slots=32, refuse=True) as server:
            server.wait_ready()
            many = asyncio.run(overload(server, slots=32, frames=50, seconds=seconds))
            tell(**asdict(many))
        with paced_server(folder, slots=200) as server:
            server.wait_ready()
            frames = round(seconds / 2 / 0.08)
            slow = asyncio.run(slow_readers(server, slow=50, normal=20, frames=frames))
            tell(**asdict(slow))
    assert streams.complete == 200 and streams.api_cores <= 1
    assert many.incomplete == many.unpolite == many.restarts == 0
    assert (slow.normal_complete, slow.slow_complete) == (20, 50) and slow.mib_each <= 4
    if granted:
        assert streams.lag_p99_s <= 0.01
        assert many.stalled <= 0.01 * many.admitted and many.slowest_refusal_s < 1
        assert slow.normal_stalled == 0


@contextmanager
def nothing_left(server: ServerProcess) -> Iterator[None]:
    """Both processes hold what they held before the block."""
    before = held(server)
    yield
    after = held(server)
    tell(before=asdict(before), after=asdict(after))
    assert after.fds <= before.fds + 2
    assert after.tasks <= before.tasks
    assert after.restarts == before.restarts
    assert after.api_mib - before.api_mib <= MAX_GROWTH_MIB
    assert after.engine_mib - before.engine_mib <= MAX_GROWTH_MIB
    server.check_lines()


def tell(**what: object) -> None:
    print(json.dumps(what, default=str), flush=True)


if __name__ == "__main__":
    main()
