"""The report of a sweep in Markdown, with its pictures beside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from voxserve.bench import ladder
from voxserve.bench.display import milliseconds, percent, remarks
from voxserve.bench.plot import plot
from voxserve.bench.result import Result
from voxserve.bench.statistics import Capacity, Figures

PICTURE = "rates.png"
CURVES_A_PICTURE = 5


def write_report(
    results: Sequence[Result], folder: Path, failures: Mapping[str, str] | None = None
) -> Path:
    """results: the baseline first. failures: servers that did not start, and why.

    Where capacities were looked for they also go into `ladder.json` and a picture. Returns the
    report's path.
    """
    pictures = _pictures(results, folder)
    path = folder / "report.md"
    searched = bool(results[0].load["near"] or results[0].load["bisect"])
    compared = _ladder(results, failures or {}, folder) if searched else _switches(results)
    first = [] if searched else _rates(results[0])
    parts = [*_head(results), *first, *compared, *pictures]
    path.write_text("\n".join([*parts, *_caveats(results)]) + "\n", encoding="utf-8")
    return path


def _head(results: Sequence[Result]) -> list[str]:
    base = results[0]
    load, machine = base.load, base.machine
    rates = ", ".join(f"{point.rate:g}" for point in base.points)
    seeds = ", ".join(map(str, load["seeds"]))
    gpus = "; ".join(machine["gpu"]) or "no GPU"
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    shares = "Server and client share it."
    if _side_by_side(results):
        shares = "Servers ran side by side, each with its clients on a GPU and cores of its own."
    return [
        f"# {base.server.get('version', {}).get('model', base.label)} under load",
        "",
        f"Made {base.made_at} at commit {machine['commit'] or 'unknown'} by",
        "",
        f"    voxserve {' '.join(base.command)}",
        "",
        f"- Machine: {machine['cpu']}; {gpus}; {machine['system']}; Python {machine['python']}; "
        f"{packages}. {shares}",
        f"- Texts: {base.texts.name}, {base.texts.rows} rows, SHA-256 {base.texts.sha256[:16]}…",
        f"- Load: Poisson arrivals at {rates} requests/s, {load['window_s']:g} s for each of the "
        f"seeds {seeds}, after {load['warm_ups']} warm-up requests and a burst of "
        f"{load['burst']}; client processes: {load['processes']}.",
        f"- A request is attained when it completes with its first audio within "
        f"{load['slo_ms']} ms and playback never pauses for 10 ms or more in all.",
        "",
    ]


def _rates(base: Result) -> list[str]:
    rows = [
        "| req/s | requests | attained (95 %) | TTFA p50 / p90 / p99 ms | stalled | refused "
        "| failed | goodput | audio s/s |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for point in base.points:
        low, high = point.attainment_95
        times = map(milliseconds, (point.ttfa_p50_s, point.ttfa_p90_s, point.ttfa_p99_s))
        rows.append(
            f"| {point.rate:g} | {point.requests} | {percent(point.attainment[point.slo_ms])} "
            f"({100 * low:.0f}–{100 * high:.0f}) | {' / '.join(times)} | {percent(point.stalled)} "
            f"| {point.refused} | {point.failed} | {point.goodput:.2f} | {point.audio_rate:.1f} |"
        )
    notes = [*([str(base.place)] if base.place else []), *remarks(base)]
    return ["## As configured", "", *rows, "", *(f"- {line}" for line in notes), ""]


def _ladder(results: Sequence[Result], failures: Mapping[str, str], folder: Path) -> list[str]:
    """The capacities one below the other."""
    found = ladder.ladder_of(results, failures)
    ladder.write(found, folder / "ladder.json")
    ladder.plot(found, folder / "ladder.png")
    return ["## Capacities", "", *ladder.table(found), "", "![Capacities](ladder.png)", ""]


def _switches(results: Sequence[Result]) -> list[str]:
    """One line a result, at the highest rate that all of them were measured at."""
    common = set.intersection(*({point.rate for point in result.points} for result in results))
    if len(results) == 1 or not common:
        return []
    rate = max(common)
    rows = [
        f"| | capacity at 90 % | at 99 % | attained at {rate:g} req/s | TTFA p99 ms | stalled "
        "| refused | goodput | valid |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for result in results:
        point = _at(result, rate)
        found = [_capacity(capacity) for capacity in result.capacity]
        rows.append(
            f"| {result.label} | {' | '.join(found)} | {percent(point.attainment[point.slo_ms])} "
            f"| {milliseconds(point.ttfa_p99_s)} | {percent(point.stalled)} | {point.refused} "
            f"| {point.goodput:.2f} | {'yes' if result.valid else 'no: late client'} |"
        )
    where = [f"- {made.label}: {made.place}" for made in results if made.place]
    return ["## One switch at a time", "", *rows, "", *where, *([""] if where else [])]


def _pictures(results: Sequence[Result], folder: Path) -> list[str]:
    """The baseline is in every picture, beside a few of the others."""
    base, others = results[0], results[1:]
    lines = []
    for number in range(max(1, -(-len(others) // CURVES_A_PICTURE))):
        some = others[number * CURVES_A_PICTURE : (number + 1) * CURVES_A_PICTURE]
        name = f"{number}-{PICTURE}"
        plot([base, *some], folder / name)
        lines += [f"![Attainment, TTFA and goodput against the rate]({name})", ""]
    return lines


def _caveats(results: Sequence[Result]) -> list[str]:
    lines = ["## What these figures do not show", ""]
    invalid = [result.label for result in results if not result.valid]
    if invalid:
        lines.append(f"- The client was late, so these are not valid: {', '.join(invalid)}.")
    base = results[0]
    if base.target.get("force_length"):
        lines.append("- Lengths were forced by the number of words: nothing is said about speech.")
    lines.append(
        "- The bars are 95 % intervals of independent requests; requests of one window share a "
        "queue, so a difference of two such intervals is no proof."
    )
    lines.append("- Client and server ran on one machine, and no network lay between them.")
    if _side_by_side(results):
        lines.append(
            "- Other servers ran at the same time: what one host shares between its GPUs (memory "
            "bandwidth, caches, power) is in the figures."
        )
    return lines


def _side_by_side(results: Sequence[Result]) -> bool:
    return len({str(result.place) for result in results}) > 1


def _at(result: Result, rate: float) -> Figures:
    return next(point for point in result.points if point.rate == rate)


def _capacity(found: Capacity) -> str:
    return f"{'≥ ' if found.at_least else ''}{found.rate:g}"
