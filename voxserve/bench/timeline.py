"""What the lanes of an engine did, from the file of `voxserve serve --trace`."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from voxserve.bench.display import percent
from voxserve.bench.pictures import save, subplots
from voxserve.errors import InvalidRequestError

STAGES = {"encode": "#CC79A7", "prefill": "#D55E00", "decode": "#0072B2", "codec": "#009E73"}
"""With their colours, which are distinct for people who see red and green alike."""
_LEAST_SHARE = 0.022
"""Of the picture's width: a narrower bar has no room for its rows."""


class Arguments(msgspec.Struct, frozen=True):
    """Of an event; metadata has `name` alone, a launch all the others."""

    name: str = ""
    rows: int = 0
    slots: list[int] = []


class Event(msgspec.Struct, frozen=True):
    """Times are microseconds."""

    ph: str
    name: str
    tid: int
    ts: float = 0.0
    dur: float = 0.0
    args: Arguments = Arguments()


class _File(msgspec.Struct, frozen=True):
    traceEvents: list[Event]


@dataclass(frozen=True, slots=True)
class Span:
    """One launch. Seconds count from the begin of the first one of the trace. goes_on: with a row
    of the launch before it on its lane.
    """

    lane: str
    stage: str
    rows: int
    goes_on: bool
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """lanes: by name, in the engine's order. spans: by their begin."""

    lanes: list[str]
    spans: list[Span]

    @property
    def end_s(self) -> float:
        return max(span.end_s for span in self.spans)

    def between(self, from_s: float, to_s: float) -> list[Span]:
        """Launches that ran then, cut off at both ends."""
        return [
            replace(span, begin_s=max(span.begin_s, from_s), end_s=min(span.end_s, to_s))
            for span in self.spans
            if span.begin_s < to_s and span.end_s > from_s
        ]


def read(path: Path) -> Timeline:
    """Also while the server still writes. Raises InvalidRequestError if it holds no launch."""
    try:
        events = msgspec.json.decode(path.read_bytes(), type=_File).traceEvents
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidRequestError(f"{path} is no trace of an engine: {error}") from error
    names = {event.tid: event.args.name for event in events if event.name == "thread_name"}
    launches = sorted((e for e in events if e.ph == "X"), key=lambda event: event.ts)
    if not launches or not all(event.tid in names for event in launches):
        raise InvalidRequestError(f"{path} holds no launch of a lane that it names")
    zero, spans = launches[0].ts, []
    before: dict[int, list[int]] = {}
    for event in launches:
        # An encoder's launch has numbers of clips there.
        slots = [] if event.name == "encode" else event.args.slots
        goes_on = not set(before.get(event.tid, ())).isdisjoint(slots)
        before[event.tid] = slots
        begin_s, end_s = (event.ts - zero) / 1e6, (event.ts + event.dur - zero) / 1e6
        lane = names[event.tid]
        spans.append(Span(lane, event.name, event.args.rows, goes_on, begin_s, end_s))
    return Timeline([names[tid] for tid in sorted(names)], spans)


def summary(timeline: Timeline, from_s: float, to_s: float) -> list[str]:
    """Busy shares, launches and rows by lane and stage, and the gaps of the LM's lane."""
    spans, whole_s = timeline.between(from_s, to_s), to_s - from_s
    lines = [f"{from_s:.3f} s to {to_s:.3f} s of the trace, {len(spans)} launches"]
    for lane in timeline.lanes:
        there = [span for span in spans if span.lane == lane]
        lines.append(f"lane {lane}: busy {percent(_busy_s(there) / whole_s)}, {_counted(there)}")
        for stage in dict.fromkeys(span.stage for span in there):
            some = [span for span in there if span.stage == stage]
            took_ms = 1e3 * np.array([span.end_s - span.begin_s for span in some])
            p50, p99 = np.percentile(took_ms, [50, 99])
            lines.append(
                f"  {stage}: busy {percent(_busy_s(some) / whole_s)}, {_counted(some)}, "
                f"{p50:.2f} / {p99:.2f} ms at p50 / p99"
            )
    first = [span for span in spans if span.lane == timeline.lanes[0]]
    gaps, waits = _gaps(first)
    lines.append(f"gaps on lane {timeline.lanes[0]}: {_told(gaps, whole_s)}")
    lines.append(f"  of them host gaps (a row goes on after it): {_told(waits, whole_s)}")
    idle = 1 - _busy_s(spans) / whole_s
    lines.append(f"no lane busy: {percent(idle)} of the time")
    return lines


def plot(timeline: Timeline, from_s: float, to_s: float, path: Path) -> None:
    """A row a lane, a bar a launch, coloured by stage, with its rows where there is room.

    Raises InvalidRequestError when matplotlib is missing, or nothing ran then.
    """
    spans = timeline.between(from_s, to_s)
    if not spans:
        raise InvalidRequestError(f"nothing ran between {from_s:g} s and {to_s:g} s")
    figure, (panel,) = subplots(1, 12.0, 0.9 + 0.75 * len(timeline.lanes))
    for span in spans:
        level = timeline.lanes.index(span.lane)
        begin_ms, end_ms = 1e3 * (span.begin_s - from_s), 1e3 * (span.end_s - from_s)
        panel.barh(
            level,
            end_ms - begin_ms,
            left=begin_ms,
            height=0.7,
            color=STAGES.get(span.stage, "#888888"),
            edgecolor="white",
            linewidth=0.3,
        )
        if span.end_s - span.begin_s > _LEAST_SHARE * (to_s - from_s):
            panel.text(
                (begin_ms + end_ms) / 2,
                level,
                str(span.rows),
                ha="center",
                va="center",
                fontsize="x-small",
                color="white",
            )
    for stage, colour in STAGES.items():
        if any(span.stage == stage for span in spans):
            panel.barh(0, 0, color=colour, label=stage)
    panel.set_yticks(range(len(timeline.lanes)), timeline.lanes)
    panel.invert_yaxis()
    panel.set_xlim(0, 1e3 * (to_s - from_s))
    panel.set_xlabel(f"milliseconds after {from_s:.3f} s of the trace; numbers are rows")
    panel.grid(axis="x", alpha=0.3)
    panel.set_axisbelow(True)
    panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
    save(figure, path)


def _busy_s(spans: Sequence[Span]) -> float:
    """Seconds in which any of them ran."""
    total, until = 0.0, -np.inf
    for span in sorted(spans, key=lambda span: span.begin_s):
        total += max(0.0, span.end_s - max(span.begin_s, until))
        until = max(until, span.end_s)
    return total


def _counted(spans: Sequence[Span]) -> str:
    rows = sum(span.rows for span in spans)
    each = f", {rows / len(spans):.1f} each" if spans else ""
    return f"{len(spans)} launches, {rows} rows{each}"


def _gaps(spans: Sequence[Span]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Seconds from each launch of one lane to the next: of all, and of those with which a row of
    the launch before goes on, so that the lane waited for the host."""
    pairs = list(itertools.pairwise(spans))
    gaps = np.array([max(0.0, after.begin_s - before.end_s) for before, after in pairs])
    return gaps, gaps[np.array([after.goes_on for _, after in pairs], bool)]


def _told(gaps: NDArray[np.float64], whole_s: float) -> str:
    if not len(gaps):
        return "none"
    p50, p99 = 1e3 * np.percentile(gaps, [50, 99])
    total_s = float(gaps.sum())
    return (
        f"{len(gaps)}, {p50:.3f} / {p99:.3f} ms at p50 / p99, {total_s:.3f} s in all "
        f"({percent(total_s / whole_s)} of the time)"
    )
