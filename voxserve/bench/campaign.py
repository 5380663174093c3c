"""A whole measurement from warm-up to result, as the commands start it."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import msgspec

from voxserve.bench import result
from voxserve.bench.display import Display
from voxserve.bench.load import Load, Runner, sweep
from voxserve.bench.metrics import METRICS, changes
from voxserve.bench.places import Place
from voxserve.bench.pool import ClientPool
from voxserve.bench.result import Result
from voxserve.bench.statistics import Figures, Window, figures
from voxserve.bench.targets import Target
from voxserve.bench.workloads import Workload


def client_processes(asked: int, cores: int | None = None) -> int:
    """asked: 0 leaves every second core to the server. cores: all of this process, if not given."""
    return asked or max(1, (cores or result.cores()) // 2)


async def measure(
    target: Target,
    workload: Workload,
    load: Load,
    headers: dict[str, str],
    *,
    label: str,
    command: list[str],
    requests: Path | None = None,
    settings: Sequence[str] = (),
    place: Place | None = None,
) -> Result:
    """Warm up, sweep and sum up, with progress on stderr.

    requests: file for one JSON line a request, with its arrivals. settings: what the result says of
    the server's. place: where that runs, and the clients with it.
    Raises UnavailableError when the server answers no warm-up request.
    """
    points: list[Figures] = []
    windows: list[Window] = []
    server = await result.about(target.url, headers)
    with ExitStack() as stack:
        display = stack.enter_context(Display(label if place else None))
        lines = stack.enter_context(requests.open("wb")) if requests else None
        async with ClientPool(load.processes, place) as pool:
            runner = Runner(
                pool,
                target,
                workload,
                load,
                headers,
                display.watch,
                keep_arrivals=lines is not None,
            )
            await runner.warm_up()
            before = await result.ask(target.url, METRICS, headers)
            async for point, ran in sweep(runner, load):
                points.append(point)
                windows += ran
                display.point(point)
                if lines:
                    await asyncio.to_thread(_note, lines, ran)
            after = await result.ask(target.url, METRICS, headers)
    # It asks programs about the machine, and other measurements may be about to begin.
    return await asyncio.to_thread(
        result.result,
        "serve",
        label,
        target,
        workload,
        load,
        points,
        windows,
        command=command,
        server=server,
        metrics=changes(before, after),
        settings=settings,
        client=pool.shares,
        place=place,
    )


async def measure_offline(
    target: Target,
    workload: Workload,
    load: Load,
    headers: dict[str, str],
    *,
    label: str,
    command: list[str],
    requests: int,
    in_flight: int,
) -> Result:
    """Send all requests at once, or as many as `in_flight` says, and time the lot."""
    server = await result.about(target.url, headers)
    with Display() as display:
        async with ClientPool(load.processes) as pool:
            runner = Runner(pool, target, workload, load, headers, display.watch)
            await runner.warm_up()
            window = await runner.at_once(requests, in_flight, load.seeds[0])
    return result.result(
        "offline",
        label,
        target,
        workload,
        load,
        [figures([window], load.slo_ms)],
        [window],
        command=command,
        server=server,
        metrics={},
        client=pool.shares,
    )


def _note(lines: BinaryIO, windows: list[Window]) -> None:
    for window in windows:
        for record in window.records:
            fields = {"rate": window.rate, "seed": window.seed} | msgspec.to_builtins(record)
            lines.write(msgspec.json.encode(fields) + b"\n")
    lines.flush()
