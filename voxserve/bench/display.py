"""What a person sees: a bar while a window runs, a table at the end."""

import sys
from types import TracebackType
from typing import Self

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from voxserve.bench.metrics import compare
from voxserve.bench.result import Result
from voxserve.bench.statistics import LATE_S, Figures

WIDE_COLUMNS = 124
"""What the whole table needs; a narrower terminal gets a part of it."""


class Display:
    """Progress on stderr: a bar on a terminal, a line a window elsewhere.

    label: of one of several measurements at once; they have lines alone, that begin with it.
    """

    def __init__(self, label: str | None = None) -> None:
        self._console = Console(stderr=True)
        self._bars = self._console.is_terminal and label is None
        self._label = "" if label is None else f"{label}: "
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} over, {task.fields[sent]} sent"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._bars,
        )
        self._name = ""
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def watch(self, name: str, sent: int, over: int, total: int) -> None:
        if name != self._name:
            if self._name:
                self._bar.remove_task(self._task)
            self._name = name
            self._task = self._bar.add_task(name, total=total, sent=0)
            if not self._bars:
                print(f"{self._label}{name}: {total} requests", file=sys.stderr, flush=True)
        self._bar.update(self._task, completed=over, sent=sent)

    def point(self, point: Figures) -> None:
        """One rate is measured."""
        self._bar.console.print(
            f"{self._label}{point.rate:g} requests/s: {percent(point.attainment[point.slo_ms])} "
            f"within {point.slo_ms} ms and without a stall, TTFA p99 "
            f"{milliseconds(point.ttfa_p99_s)} ms"
            + ("" if point.valid else f", INVALID: sent {point.late_p99_s * 1e3:.1f} ms late"),
            highlight=False,
            soft_wrap=True,
        )


def show(result: Result) -> None:
    """The table of a result on stdout."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE_COLUMNS)
    if result.kind == "offline":
        console.print(title(result), *map(_offline, result.points), sep="\n", highlight=False)
    else:
        console.print(table(result, narrow=console.width < WIDE_COLUMNS))
    for line in remarks(result):
        console.print(line, highlight=False)


def _offline(point: Figures) -> str:
    return (
        f"{point.completed} of {point.requests} requests, {point.audio_s:.1f} s of audio in "
        f"{point.window_s:.1f} s: {point.audio_rate:.2f} s of audio a second, "
        f"{point.completed / point.window_s:.2f} requests/s"
    )


def table(result: Result, narrow: bool = False) -> Table:
    """narrow: only the columns that fit into 80 characters."""
    shown = Table(
        title=title(result),
        title_justify="left",
        box=SIMPLE,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )
    rows = [cells(point, narrow) for point in result.points]
    for name in rows[0] if rows else ():
        shown.add_column(name, justify="right", no_wrap=True)
    for row, point in zip(rows, result.points, strict=True):
        shown.add_row(*row.values(), style=None if point.valid else "red")
    return shown


def cells(point: Figures, narrow: bool) -> dict[str, str]:
    """The cells of a row by the name of their column."""
    limits = [point.slo_ms] if narrow else list(point.attainment)
    times = (point.ttfa_p50_s, point.ttfa_p90_s, point.ttfa_p99_s)
    row = {
        "req/s": f"{point.rate:g}",
        "sent": str(point.requests + point.left),
        **{f"≤{limit} ms": percent(point.attainment[limit]) for limit in limits},
        "TTFA p50/90/99 ms": " / ".join(map(milliseconds, times)),
        "stalled": percent(point.stalled),
        "refused": str(point.refused),
        "failed": str(point.failed),
        "goodput": f"{point.goodput:.2f}",
    }
    if not narrow:
        row["audio s/s"] = f"{point.audio_rate:.1f}"
        row["late"] = f"{point.late_p99_s * 1e3:.1f} ms"
    return row


def title(result: Result) -> str:
    """What was measured; a stub is never passed off as a server."""
    if result.kind == "stub":
        return "Scripted stub, no server: these figures tell of the client alone"
    words = {"serve": "Measured", "offline": "Measured, all at once", "simulate": "Simulated"}
    return f"{words[result.kind]}: {result.label} on {result.texts.name}"


def remarks(result: Result) -> list[str]:
    """Capacities, and what is wrong with the result."""
    lines = []
    if result.kind in ("serve", "simulate"):
        for found in result.capacity:
            more = "at least " if found.at_least else ""
            until = "" if found.misses_at is None else f" (missed at {found.misses_at:g})"
            lines.append(f"capacity at {percent(found.goal)}: {more}{found.rate:g} req/s{until}")
    lines += counts(result)
    if not result.valid:
        lines.append(
            f"INVALID: the client sent requests more than {LATE_S * 1e3:g} ms late at the 99th "
            "percentile; use more --processes, or another machine"
        )
    return lines


def counts(result: Result) -> list[str]:
    """Refusals, leavers, errors, and where the server counted otherwise."""
    lines = []
    # A simulation refuses in no time.
    if result.kind != "simulate":
        lines += [line for point in result.points for line in _aside(point)]
    if result.client and result.kind == "stub":
        lines += client_lines(result)
    errors: dict[str, int] = {}
    for point in result.points:
        for message, count in point.errors.items():
            errors[message] = errors.get(message, 0) + count
    lines += [f"{count} x {message}" for message, count in errors.items()]
    for counted in compare(result.metrics, result.points):
        if not counted.agrees:
            lines.append(
                f"{counted.name}: {counted.client:.4g} here, "
                f"{counted.server:.4g} by the server's metrics"
            )
    return lines


def _aside(point: Figures) -> list[str]:
    """What has no column of its own."""
    lines = []
    if point.refused_p99_s is not None and point.refused_max_s is not None:
        lines.append(
            f"{point.rate:g} req/s: {point.refused} refused, each within {point.refused_max_s:.3f} "
            f"s of its sending, 99 % within {point.refused_p99_s:.3f} s"
        )
    if point.left:
        lines.append(
            f"{point.rate:g} req/s: {point.left} clients left before the end, as they were to; "
            "all columns but `sent` and `late` leave them out"
        )
    return lines


def client_lines(result: Result) -> list[str]:
    """What the client processes cost."""
    sent = sum(share.requests for share in result.client)
    cpu_s = sum(share.cpu_s for share in result.client)
    rate = max((point.rate for point in result.points), default=0.0)
    each = ", ".join(
        f"{share.requests} in {share.cpu_s:.2f} s, {1e3 * share.late_p99_s:.1f} ms late"
        for share in result.client
    )
    return [
        f"client: {1e3 * cpu_s / max(1, sent):.2f} ms of processor time a request, so "
        f"{cpu_s / max(1, sent) * rate:.2f} cores at {rate:g} requests/s",
        f"each process (requests, processor time, lateness at the 99th percentile): {each}",
    ]


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"
