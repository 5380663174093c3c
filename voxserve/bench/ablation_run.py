"""What each mechanism is worth: the same load on one server a variant, in turn or side by side."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from voxserve.bench import campaign, result
from voxserve.bench.ablations import Variant
from voxserve.bench.load import Load
from voxserve.bench.places import Place
from voxserve.bench.result import Result
from voxserve.bench.server import running
from voxserve.bench.targets import Target
from voxserve.bench.workloads import Workload
from voxserve.errors import UnavailableError

FAILURES = "failures.json"


@dataclass(slots=True)
class Outcome:
    """results: in the variants' order, without those that failed. failures: why, by name."""

    results: list[Result]
    failures: dict[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. arguments: of `voxserve serve`. target: its URL is filled in. places:
    where; the variants are dealt out to them in turn. together: start all servers at once and stop
    each when it was measured; those that wait only hold memory. minutes: in all.
    """

    arguments: Sequence[str]
    target: Target
    workload: Workload
    load: Load
    variants: Sequence[Variant]
    command: list[str]
    start_s: float
    together: bool = False
    minutes: float | None = None
    places: Sequence[Place] = ()


async def measure_all(plan: Plan, folder: Path) -> Outcome:
    """Every variant on a server of its own; results are written into `folder` as they come.

    A place measures its variants one after the other, each in an equal part of what it has left
    of the minutes. A variant whose server does not start is noted, and the next one has its turn;
    raises UnavailableError when none starts.
    """
    (folder / FAILURES).unlink(missing_ok=True)
    lanes = max(1, len(plan.places))
    async with _servers(plan, folder) as servers:
        run = _Run(plan, folder, servers)
        await asyncio.gather(
            *(run.lane(range(first, len(plan.variants), lanes)) for first in range(lanes))
        )
    if not run.results:
        raise UnavailableError("; ".join(run.failures.values()))
    return Outcome([run.results[number] for number in sorted(run.results)], run.failures)


def failures_in(folder: Path) -> dict[str, str]:
    """Servers that did not start, as `measure_all` left them in a folder."""
    path = folder / FAILURES
    return msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}


class _Run:
    """results: by the variant's number."""

    def __init__(self, plan: Plan, folder: Path, servers: "Sequence[_Server]") -> None:
        self.results: dict[int, Result] = {}
        self.failures: dict[str, str] = {}
        self._plan, self._folder, self._servers = plan, folder, servers
        self._until_s = time.monotonic() + 60 * plan.minutes if plan.minutes else None

    async def lane(self, numbers: Sequence[int]) -> None:
        """These variants, one after the other."""
        for done, number in enumerate(numbers):
            variant = self._plan.variants[number]
            try:
                async with self._servers[number] as url:
                    made = await self._measure(number, url, len(numbers) - done)
            except UnavailableError as error:
                self.failures[variant.name] = str(error)
                (self._folder / FAILURES).write_bytes(msgspec.json.encode(self.failures))
                continue
            result.write(made, self._folder / f"{number:02}.json")
            self.results[number] = made

    async def _measure(self, number: int, url: str, left: int) -> Result:
        """left: how many variants share the time that is left."""
        plan, load = self._plan, self._plan.load
        if load.near:
            guess = _guess(load.near[0], plan.variants[: number + 1], self.results)
            load = msgspec.structs.replace(load, near=(guess, load.near[1]))
        if self._until_s is not None:
            budget_s = (self._until_s - time.monotonic()) / left
            load = msgspec.structs.replace(load, budget_s=budget_s)
        return await campaign.measure(
            replace(plan.target, url=url),
            plan.workload,
            load,
            {},
            label=plan.variants[number].name,
            command=plan.command,
            settings=plan.variants[number].settings,
            place=_place(plan, number),
        )


def _place(plan: Plan, number: int) -> Place | None:
    return plan.places[number % len(plan.places)] if plan.places else None


def _guess(near: float, variants: Sequence[Variant], results: dict[int, Result]) -> float:
    """Where to begin with the last of these variants: at its own guess, or else at what the one
    before it came to, or is expected to, times what the mechanism is."""
    guess = near
    for number, variant in enumerate(variants):
        known = results.get(number)
        if known is not None and known.capacity[0].rate:
            guess = known.capacity[0].rate
        elif known is not None and known.points:
            guess = min(point.rate for point in known.points) / 2
        else:
            guess = variant.near or guess * variant.factor
    return guess


@asynccontextmanager
async def _servers(plan: Plan, folder: Path) -> AsyncIterator[list["_Server"]]:
    """One server a variant, each started when it is entered, or all of them here."""
    servers = []
    for number, variant in enumerate(plan.variants):
        changed = [part for setting in variant.settings for part in ("--set", setting)]
        log = folder / f"{number:02}-server.log"
        arguments = [*plan.arguments, *changed]
        servers.append(_Server(arguments, log, plan.start_s, _place(plan, number)))
    try:
        if plan.together:
            await asyncio.gather(*(server.start() for server in servers))
        yield servers
    finally:
        for server in servers:
            await server.stop()


class _Server:
    """A server that may be started ahead of its use; an error of its start is kept until then."""

    def __init__(
        self, arguments: Sequence[str], log: Path, start_s: float, place: Place | None
    ) -> None:
        self._arguments, self._log, self._start_s = arguments, log, start_s
        self._place = place
        self._stack = AsyncExitStack()
        self._url: str | None = None
        self._error: UnavailableError | None = None

    async def start(self) -> None:
        try:
            server = running(self._arguments, self._log, self._start_s, self._place)
            self._url = await self._stack.enter_async_context(server)
        except UnavailableError as error:
            self._error = error

    async def stop(self) -> None:
        await self._stack.aclose()

    async def __aenter__(self) -> str:
        if self._url is None and self._error is None:
            await self.start()
        if self._error is not None:
            raise self._error
        assert self._url is not None
        return self._url

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
