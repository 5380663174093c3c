"""What a server holds, to be compared before and after."""

import time
from dataclasses import dataclass

import psutil

from tests.api.server_process import ServerProcess, poll

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Held:
    """fds: open files of both processes. threads: of both. tasks: of the API's event loop.

    *_mib: resident memory of each.
    """

    fds: int
    tasks: float
    threads: int
    api_mib: float
    engine_mib: float
    restarts: float


def held(server: ServerProcess) -> Held:
    """Once nothing runs, and the connections that are closing are closed."""
    server.wait_idle(60)
    api, engine = psutil.Process(server.process.pid), server.engine()
    # Kept-alive connections of the load that has just ended may still be open.
    poll("connections are closed", lambda: len(api.net_connections("tcp")) <= 3, 90)
    return Held(
        fds=api.num_fds() + engine.num_fds(),
        tasks=_tasks(server),
        threads=api.num_threads() + engine.num_threads(),
        api_mib=round(api.memory_info().rss / MIB, 1),
        engine_mib=round(engine.memory_info().rss / MIB, 1),
        restarts=server.metric("voxserve_engine_restarts_total"),
    )


def _tasks(server: ServerProcess) -> float:
    """The least of some moments: the request that asks, and what it leaves, count as well."""
    told = []
    for _ in range(5):
        told.append(server.metric("voxserve_loop_tasks"))
        time.sleep(0.2)
    return min(told)
