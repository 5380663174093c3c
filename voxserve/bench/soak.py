"""One long load without a pause: does a server get slower, and does it keep what it took?"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from voxserve.bench import result
from voxserve.bench.display import Display
from voxserve.bench.held import Held, Holder
from voxserve.bench.load import Load, Runner
from voxserve.bench.metrics import METRICS, changes
from voxserve.bench.pool import ClientPool
from voxserve.bench.records import Record
from voxserve.bench.result import Result
from voxserve.bench.statistics import Figures, Window, figures
from voxserve.bench.targets import Target
from voxserve.bench.workloads import Workload

PARTS = 4
EARLY = 1 / 8
"""Of the load: from here on the server counts as warm."""
LOOKS = 64
SPAN = 1 / 16
"""Of the load: memory is the median over so long."""
RELEASE_S = 30.0
RESTARTS = "voxserve_engine_restarts_total"


class Limits(msgspec.Struct, frozen=True):
    """host_mib, gpu_mib: growth of one process and one GPU from early under load to its end.
    files: open ones, from idle to idle. ttfa: how much the last quarter's p99 may exceed the first,
    as a share."""

    host_mib: float = 50.0
    gpu_mib: float = 50.0
    files: int = 16
    ttfa: float = 0.10


class Memory(msgspec.Struct, frozen=True):
    """MiB by process and by GPU, early under load and at its end. host: (seconds from the first
    request, MiB by process) all along."""

    early_host_mib: dict[str, float]
    end_host_mib: dict[str, float]
    early_gpu_mib: dict[str, float]
    end_gpu_mib: dict[str, float]
    host: list[tuple[float, dict[str, float]]]


class Soak(msgspec.Struct, frozen=True):
    """result: of the whole run; quarters: of its parts, by when a request was due. before: idle
    after the warm-up; after: idle after the last response. problems: empty for a server that holds
    up.
    """

    result: Result
    quarters: list[Figures]
    before: Held
    after: Held
    memory: Memory
    limits: Limits
    problems: list[str]


async def measure(
    target: Target,
    workload: Workload,
    load: Load,
    headers: dict[str, str],
    *,
    rate: float,
    label: str,
    command: list[str],
    gpus: str | None = None,
    limits: Limits | None = None,
) -> Soak:
    """One window of `load.window_s`, with looks at the server before, meanwhile and after.

    gpus: whose memory to watch, if not those that the server sees. Raises UnavailableError when the
    server answers no warm-up request.
    """
    limits = limits or Limits()
    holder = Holder(target.url, headers, gpus)
    server = await result.about(target.url, headers)
    with Display() as display:
        async with ClientPool(load.processes) as pool:
            watched = _Watched(holder, load.window_s)

            def watch(name: str, sent: int, over: int, total: int) -> None:
                display.watch(name, sent, over, total)
                if sent:
                    watched.begun.set()

            runner = Runner(pool, target, workload, load, headers, watch)
            await runner.warm_up()
            watched.begun.clear()
            before = await holder.look_when_released({}, RELEASE_S)
            counted = await result.ask(target.url, METRICS, headers)
            looking = asyncio.create_task(watched.run())
            window = await runner.window(rate, load.seeds[0])
            # The last response may be early, the last look at the memory is not.
            watched.begun.set()
            await looking
            after = await holder.look_when_released(before.in_use, RELEASE_S)
            moved = changes(counted, await result.ask(target.url, METRICS, headers))
    whole = result.result(
        "serve",
        label,
        target,
        workload,
        load,
        [figures([window], load.slo_ms)],
        [window],
        command=command,
        server=server,
        metrics=moved,
        client=pool.shares,
    )
    quarters = parts(window, load.slo_ms)
    memory = watched.memory()
    problems = judge(whole, quarters, before, after, memory, limits)
    return Soak(whole, quarters, before, after, memory, limits, problems)


def parts(window: Window, slo_ms: int, count: int = PARTS) -> list[Figures]:
    """Figures of equal parts of a window, each as if it began at 0."""
    part_s = window.window_s / count
    dealt: list[list[Record]] = [[] for _ in range(count)]
    for record in window.records:
        number = min(count - 1, int(record.due_s / part_s))
        due_s = record.due_s - number * part_s
        dealt[number].append(msgspec.structs.replace(record, due_s=due_s))
    return [
        figures([Window(window.rate, window.seed, part_s, records)], slo_ms) for records in dealt
    ]


def judge(
    whole: Result,
    quarters: Sequence[Figures],
    before: Held,
    after: Held,
    memory: Memory,
    limits: Limits,
) -> list[str]:
    """What is wrong with the server, or with the measurement, a sentence each."""
    found = [
        f"{name}: {used:g} after the last response, {before.in_use.get(name, 0.0):g} before"
        for name, used in after.in_use.items()
        if used > before.in_use.get(name, 0.0)
    ]
    found += _grown("host memory", memory.early_host_mib, memory.end_host_mib, limits.host_mib)
    found += _grown("memory", memory.early_gpu_mib, memory.end_gpu_mib, limits.gpu_mib)
    for name, files in after.open_files.items():
        if files > before.open_files.get(name, 0) + limits.files:
            were = before.open_files.get(name, 0)
            found.append(f"open files of {name}: {files} after, {were} before")
    restarts = sum(n for name, n in whole.metrics.items() if name.startswith(RESTARTS))
    if restarts:
        found.append(f"the engine was started again {restarts:g} times")
    first, last = quarters[0].ttfa_p99_s, quarters[-1].ttfa_p99_s
    if first is None or last is None:
        found.append("no request of the first or of the last quarter got audio")
    elif last > first * (1 + limits.ttfa):
        found.append(
            f"TTFA p99 of the last quarter, {1e3 * last:.0f} ms, is "
            f"{100 * (last / first - 1):.0f} % above the first's, {1e3 * first:.0f} ms; "
            f"{100 * limits.ttfa:g} % is allowed"
        )
    if not whole.valid:
        found.append("the client was late, so the figures are not valid: use more --processes")
    return found


def write(soak: Soak, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(soak), indent=1) + b"\n")


def read(path: Path) -> Soak | None:
    """None when the file holds something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Soak)
    except (OSError, msgspec.DecodeError):
        return None


def _grown(
    what: str, early: dict[str, float], end: dict[str, float], limit_mib: float
) -> list[str]:
    return [
        f"{what} of {name}: {mib:.0f} MiB at the end of the load, {early[name]:.0f} MiB at "
        f"an eighth of it; {limit_mib:g} MiB more are allowed"
        for name, mib in end.items()
        if name in early and mib - early[name] > limit_mib
    ]


class _Watched:
    """Looks at a server's memory while a load runs. begun: set when its first request is sent."""

    def __init__(self, holder: Holder, window_s: float) -> None:
        self.begun = asyncio.Event()
        self._holder, self._window_s = holder, window_s
        self._host: list[tuple[float, dict[str, float]]] = []
        self._early = self._end = Held({}, {}, {}, {})

    async def run(self) -> None:
        """Host memory all along, and the GPU's twice, since asking the driver may hold it up."""
        await self.begun.wait()
        begin_s = time.monotonic()
        for number in range(LOOKS + 1):
            await asyncio.sleep(begin_s + number / LOOKS * self._window_s - time.monotonic())
            at_s = time.monotonic() - begin_s
            self._host.append((at_s, await self._holder.host_mib()))
            if number == round(EARLY * LOOKS):
                self._early = await self._holder.look()
            elif number == LOOKS:
                self._end = await self._holder.look()

    def memory(self) -> Memory:
        end_s = self._window_s
        return Memory(
            early_host_mib=self._median(EARLY * end_s, (EARLY + SPAN) * end_s),
            end_host_mib=self._median((1 - SPAN) * end_s, end_s + 1.0),
            early_gpu_mib=self._early.gpu_mib,
            end_gpu_mib=self._end.gpu_mib,
            host=self._host,
        )

    def _median(self, from_s: float, to_s: float) -> dict[str, float]:
        looks = [mib for at_s, mib in self._host if from_s <= at_s <= to_s]
        names = {name for mib in looks for name in mib}
        return {
            name: float(np.median([mib[name] for mib in looks if name in mib]))
            for name in sorted(names)
        }
