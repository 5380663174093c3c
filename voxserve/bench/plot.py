"""Pictures of results: attainment, TTFA and goodput against the rate, several results in one."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from voxserve.bench.pictures import log_scale, save, subplots
from voxserve.bench.result import Result
from voxserve.bench.statistics import GOALS, Figures
from voxserve.errors import InvalidRequestError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES = ("o-", "s--", "^-.", "D:", "v-", "P--")
# Distinct for people who see red and green alike.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def plot(results: Sequence[Result], path: Path) -> None:
    """Write one picture of all results; the ending of `path` says its format.

    Raises InvalidRequestError when matplotlib is missing, or a result holds no rate.
    """
    figure, axes = subplots(3, 8.0, 9.0)
    for number, result in enumerate(results):
        if not result.points:
            raise InvalidRequestError(f"{result.label} holds no rate")
        _curves(axes, result, STYLES[number % 6], COLOURS[number % 6])
    slo_ms = results[0].points[0].slo_ms
    attainment, ttfa, goodput = axes
    for goal in GOALS:
        _line(attainment, goal, f"{100 * goal:g} %")
    attainment.set_ylabel(f"share with audio within {slo_ms} ms\nand no stall")
    attainment.set_ylim(-0.03, 1.05)
    ttfa.set_ylabel("TTFA p99, ms")
    log_scale(ttfa)
    low_ms, high_ms = ttfa.get_ylim()
    ttfa.set_ylim(min(low_ms, slo_ms / 10), max(high_ms, slo_ms * 5))
    _line(ttfa, slo_ms, f"{slo_ms} ms")
    highest = max(point.rate for result in results for point in result.points)
    goodput.plot([0, highest], [0, highest], color="#888888", linewidth=0.8, linestyle=":")
    goodput.set_ylabel("goodput, requests/s")
    goodput.set_xlabel("requests a second")
    for panel in axes:
        panel.set_xlim(0, 1.05 * highest)
        panel.grid(alpha=0.3)
    texts = ", ".join(dict.fromkeys(result.texts.name for result in results))
    attainment.set_title(f"Open-loop load, texts: {texts}")
    attainment.legend(loc="best", fontsize="small")
    save(figure, path)


def _curves(axes: "Sequence[Axes]", result: Result, style: str, colour: str) -> None:
    points = sorted(result.points, key=lambda point: point.rate)
    rates = [point.rate for point in points]
    shares = [point.attainment[point.slo_ms] for point in points]
    # Rounding may put an end of the interval on the wrong side of the share itself.
    low = [max(0.0, s - p.attainment_95[0]) for s, p in zip(shares, points, strict=True)]
    high = [max(0.0, p.attainment_95[1] - s) for s, p in zip(shares, points, strict=True)]
    axes[0].errorbar(
        rates,
        shares,
        yerr=[low, high],
        fmt=style,
        color=colour,
        markersize=4,
        capsize=2,
        linewidth=1.2,
        label=name(result),
    )
    heard = [point for point in points if point.ttfa_p99_s is not None]
    axes[1].plot(
        [point.rate for point in heard],
        [1e3 * _p99(point) for point in heard],
        style,
        color=colour,
        markersize=4,
    )
    goodputs = [point.goodput for point in points]
    axes[2].plot(rates, goodputs, style, color=colour, markersize=4)


def _line(panel: "Axes", level: float, words: str) -> None:
    """A dotted line across the panel, named at its right end."""
    panel.axhline(level, color="#888888", linewidth=0.8, linestyle=":")
    panel.annotate(
        words,
        (1.0, level),
        xycoords=("axes fraction", "data"),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize="x-small",
        color="#555555",
    )


def name(result: Result) -> str:
    """How a legend calls a result."""
    if result.kind == "stub":
        return "scripted stub, no server"
    kind = "simulated: " if result.kind == "simulate" else ""
    return kind + result.label + ("" if result.valid else " (INVALID: late client)")


def _p99(point: Figures) -> float:
    assert point.ttfa_p99_s is not None
    return point.ttfa_p99_s
