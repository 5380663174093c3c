"""What each mechanism is worth: the same load on servers that differ in a few settings."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from voxserve.bench import campaign, result
from voxserve.bench.load import Load
from voxserve.bench.result import Result
from voxserve.bench.server import running
from voxserve.bench.targets import Target
from voxserve.bench.workloads import Workload
from voxserve.errors import InvalidRequestError, UnavailableError

BASELINE = "as configured"
FAILURES = "failures.json"


@dataclass(frozen=True, slots=True)
class Variant:
    """One server. settings: KEY=VALUE each. near: where the search for its capacity begins; None
    takes what the one before came to, times `factor`."""

    name: str
    settings: tuple[str, ...] = ()
    factor: float = 1.0
    near: float | None = None


SWITCHES: dict[str, tuple[str, ...]] = {
    "no urgent lane": ("policy.urgent_lane=false",),
    "no background lane": ("policy.background_lane=false",),
    "no partition": ("engine.codec_sms=0",),
    "one launch at a time": ("policy.overlap=false",),
    "one LM launch in flight": ("policy.lm_in_flight=1",),
    "prefill first": ("policy.admission=prefill-first",),
    "nobody refused": ("policy.refuse=false",),
    "background batches of 1": ("policy.background_batch=1",),
    "quickest ramp": ("policy.ramp=0",),
}
# Each mechanism, what a server without it is told, and how much is expected of it. Rungs are
# climbed from the bottom: the last one is the server as configured.
MECHANISMS: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("synchronous loop", (), 1.0),
    ("second codec stream", ("policy.overlap=false",), 1.1),
    (
        "asynchronous lanes, slack batching",
        ("policy.lm_in_flight=1", "policy.background_batch=1"),
        1.2,
    ),
    ("fused codec", ("engine.codec_kernels=eager",), 1.3),
    ("fused LM kernels", ("engine.lm_kernels=reference",), 8.0),
    ("partition with urgent lane", ("engine.codec_sms=0", "policy.urgent_lane=false"), 1.2),
    ("deadline admission", ("policy.admission=prefill-first", "policy.refuse=false"), 1.1),
)


def ladder() -> list[Variant]:
    """The server without any of the mechanisms, then with one more at each rung."""
    rungs = []
    for number, (name, _, factor) in enumerate(MECHANISMS):
        missing = tuple(key for _, off, _ in MECHANISMS[number + 1 :] for key in off)
        rungs.append(Variant(name, missing, factor))
    return rungs


def chosen(names: Sequence[str]) -> list[Variant]:
    """Switches by name; `NAME:KEY=VALUE[,KEY=VALUE]` adds one of the user's own.

    Raises InvalidRequestError naming the known ones.
    """
    found = []
    for name in names:
        own, colon, settings = name.partition(":")
        if colon and "=" in settings:
            found.append(Variant(own, tuple(settings.split(","))))
        elif name in SWITCHES:
            found.append(Variant(name, SWITCHES[name]))
        else:
            known = ", ".join(SWITCHES)
            raise InvalidRequestError(f"ablation {name} is neither NAME:KEY=VALUE nor of {known}")
    return found


@dataclass(slots=True)
class Outcome:
    """results: in the variants' order, without those that failed. failures: why, by name."""

    results: list[Result] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


async def measure_all(
    arguments: Sequence[str],
    target: Target,
    workload: Workload,
    load: Load,
    variants: Sequence[Variant],
    folder: Path,
    *,
    command: list[str],
    start_s: float,
    together: bool = False,
    minutes: float | None = None,
) -> Outcome:
    """Every variant on a server of its own; results are written into `folder` as they come.

    arguments: of `voxserve serve`. target: its URL is filled in. together: start all servers at
    once and stop each when it was measured; those that wait only hold memory. minutes: in all, an
    equal part of what is left for each variant. A variant whose server does not start is noted, and
    the next one has its turn; raises UnavailableError when none starts.
    """
    outcome = Outcome()
    (folder / FAILURES).unlink(missing_ok=True)
    until_s = time.monotonic() + 60 * minutes if minutes else None
    async with _servers(arguments, variants, folder, start_s, together) as servers:
        for number, variant in enumerate(variants):
            try:
                async with servers[number] as url:
                    part = load
                    if load.near:
                        near = _guess(load.near, variants, outcome)
                        part = msgspec.structs.replace(part, near=near)
                    if until_s is not None:
                        left_s = (until_s - time.monotonic()) / (len(variants) - number)
                        part = msgspec.structs.replace(part, budget_s=left_s)
                    made = await campaign.measure(
                        replace(target, url=url),
                        workload,
                        part,
                        {},
                        label=variant.name,
                        command=command,
                        settings=variant.settings,
                    )
            except UnavailableError as error:
                outcome.failures[variant.name] = str(error)
                (folder / FAILURES).write_bytes(msgspec.json.encode(outcome.failures))
                continue
            result.write(made, folder / f"{number:02}.json")
            outcome.results.append(made)
    if not outcome.results:
        raise UnavailableError("; ".join(outcome.failures.values()))
    return outcome


def failures_in(folder: Path) -> dict[str, str]:
    """Servers that did not start, as `measure_all` left them in a folder."""
    path = folder / FAILURES
    return msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}


def _guess(
    near: tuple[float, int], variants: Sequence[Variant], outcome: Outcome
) -> tuple[float, int]:
    """Where to begin: what the last variant came to, times what the ones since are expected to."""
    guess, tests = near
    done = {made.label: made for made in outcome.results}
    for variant in variants:
        known = done.get(variant.name)
        if known is None and variant.near and variant.name not in outcome.failures:
            return variant.near, tests
        if known is None:
            guess *= variant.factor
            if variant.name not in outcome.failures:
                return guess, tests
        elif known.capacity[0].rate:
            guess = known.capacity[0].rate
        elif known.points:
            guess = min(point.rate for point in known.points) / 2
    raise AssertionError("every variant is measured already")


@asynccontextmanager
async def _servers(
    arguments: Sequence[str],
    variants: Sequence[Variant],
    folder: Path,
    start_s: float,
    together: bool,
) -> AsyncIterator[list["_Server"]]:
    """One server a variant, each started when it is entered, or all of them here."""
    servers = [
        _Server(_arguments(arguments, variant), folder / f"{number:02}-server.log", start_s)
        for number, variant in enumerate(variants)
    ]
    try:
        if together:
            await asyncio.gather(*(server.start() for server in servers))
        yield servers
    finally:
        for server in servers:
            await server.stop()


class _Server:
    """A server that may be started ahead of its use; an error of its start is kept until then."""

    def __init__(self, arguments: Sequence[str], log: Path, start_s: float) -> None:
        self._arguments, self._log, self._start_s = arguments, log, start_s
        self._stack = AsyncExitStack()
        self._url: str | None = None
        self._error: UnavailableError | None = None

    async def start(self) -> None:
        try:
            server = running(self._arguments, self._log, self._start_s)
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


def _arguments(arguments: Sequence[str], variant: Variant) -> list[str]:
    changed = [part for setting in variant.settings for part in ("--set", setting)]
    return [*arguments, *changed]
