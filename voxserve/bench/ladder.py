"""Capacities of several servers side by side: a table, a picture, and a small JSON file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from voxserve.bench.display import milliseconds, percent
from voxserve.bench.pictures import save, subplots
from voxserve.bench.places import Place
from voxserve.bench.plot import COLOURS
from voxserve.bench.result import Result
from voxserve.bench.statistics import GOALS, Figures, capacity, crossing


class Step(msgspec.Struct, frozen=True):
    """What one server came to. capacity: by the share that has to attain, as `capacity` counts it;
    misses_at: the lowest tested rate that misses the first of them; crossing: where a straight line
    between the two falls through it. tested: (rate, attainment) in ascending order. place: where
    on the machine it ran, if that was given.
    """

    name: str
    settings: list[str]
    capacity: dict[str, float]
    misses_at: float | None
    crossing: float | None
    tested: list[tuple[float, float]]
    valid: bool
    ttfa_p50_s: float | None
    ttfa_p99_s: float | None
    place: Place | None = None


class Ladder(msgspec.Struct, frozen=True):
    """All steps of a run; failures: servers that did not start, and why."""

    made_at: str
    commit: str | None
    gpu: list[str]
    command: list[str]
    window_s: float
    seeds: list[int]
    slo_ms: int
    steps: list[Step]
    failures: dict[str, str]


def ladder_of(results: Sequence[Result], failures: Mapping[str, str]) -> Ladder:
    first = results[0]
    return Ladder(
        made_at=first.made_at,
        commit=first.machine["commit"],
        gpu=first.machine["gpu"],
        command=first.command,
        window_s=first.load["window_s"],
        seeds=first.load["seeds"],
        slo_ms=first.load["slo_ms"],
        steps=[_step(made) for made in results],
        failures=dict(failures),
    )


def write(ladder: Ladder, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(ladder), indent=1) + b"\n")


def table(ladder: Ladder) -> list[str]:
    """The steps in Markdown."""
    goals = " | ".join(f"capacity at {percent(goal)}" for goal in GOALS)
    lines = [
        f"| | {goals} | missed at | line between | TTFA p50 / p99 there, ms | tested | valid |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for step in ladder.steps:
        found = " | ".join(_rate(step.capacity[str(goal)]) for goal in GOALS)
        missed = "-" if step.misses_at is None else f"{step.misses_at:g}"
        line = "-" if step.crossing is None else f"{step.crossing:.1f}"
        tested = ", ".join(f"{rate:g}: {percent(share)}" for rate, share in step.tested)
        times = f"{milliseconds(step.ttfa_p50_s)} / {milliseconds(step.ttfa_p99_s)}"
        valid = "yes" if step.valid else "no: late client"
        lines.append(
            f"| {step.name} | {found} | {missed} | {line} | {times} | {tested} | {valid} |"
        )
    lines += ["", *(f"- {step.name}: {_told(step)}" for step in ladder.steps)]
    lines += [f"- {name}: not measured, {why}" for name, why in ladder.failures.items()]
    return lines


def plot(ladder: Ladder, path: Path) -> None:
    """A bar a step. Raises InvalidRequestError when matplotlib is missing."""
    steps = ladder.steps
    figure, (panel,) = subplots(1, 8.0, 1.2 + 0.55 * len(steps))
    main, strict = (str(goal) for goal in GOALS)
    for number, step in enumerate(steps):
        found = step.capacity[main]
        panel.barh(number, found, color=COLOURS[0] if step.valid else "#bbbbbb", height=0.55)
        beyond = step.misses_at or found
        panel.plot([found, beyond], [number, number], "|-", color="#333333", linewidth=1.0)
        if step.capacity[strict]:
            panel.plot(step.capacity[strict], number, "D", color=COLOURS[4], markersize=5)
        words = f"{found:g}" if step.misses_at else f"≥ {found:g}"
        panel.annotate(
            words, (beyond, number), xytext=(5, -3), textcoords="offset points", fontsize="small"
        )
    panel.plot([], [], "D", color=COLOURS[4], markersize=5, label=f"at {percent(GOALS[1])}")
    panel.plot([], [], "|-", color="#333333", label="up to the lowest rate that missed")
    panel.set_yticks(range(len(steps)), [step.name for step in steps])
    panel.invert_yaxis()
    panel.set_xlim(
        left=0, right=1.12 * max(step.misses_at or max(step.capacity.values()) for step in steps)
    )
    panel.set_xlabel(
        f"capacity at {percent(GOALS[0])}, requests/s\n"
        f"(audio within {ladder.slo_ms} ms, no stall; windows of {ladder.window_s:g} s)"
    )
    panel.grid(axis="x", alpha=0.3)
    panel.legend(fontsize="x-small", loc="upper right")
    save(figure, path)


def _rate(found: float) -> str:
    return f"{found:g}" if found else "none tested"


def _told(step: Step) -> str:
    words = f"`{' '.join(step.settings)}`" if step.settings else "as configured"
    return f"{words}; {step.place}" if step.place else words


def _step(made: Result) -> Step:
    points = sorted(made.points, key=lambda point: point.rate)
    found = {str(goal): capacity(points, goal) for goal in GOALS}
    main = found[str(GOALS[0])]
    there = _at(points, main.rate)
    return Step(
        name=made.label,
        settings=made.settings,
        capacity={goal: one.rate for goal, one in found.items()},
        misses_at=main.misses_at,
        crossing=crossing(points, GOALS[0]),
        tested=[(point.rate, point.attainment[point.slo_ms]) for point in points],
        valid=made.valid,
        ttfa_p50_s=there.ttfa_p50_s if there else None,
        ttfa_p99_s=there.ttfa_p99_s if there else None,
        place=made.place,
    )


def _at(points: Sequence[Figures], rate: float) -> Figures | None:
    return next((point for point in points if point.rate == rate), None)
