"""From the records of a window to its figures, and from many windows to a capacity."""

import itertools
import math
from collections.abc import Sequence

import msgspec
import numpy as np

from voxserve.bench.playback import STALL_S
from voxserve.bench.records import Record

TTFA_MS = (200, 250, 500, 1000)
GOALS = (0.90, 0.99)
LATE_S = 0.005
"""A client that sends its requests later than this at the 99th percentile measures itself."""
WAY_S = 0.010
"""Network, and two event loops: what a client waits for and its server does not see."""

GIVE_UP_S = 1.0
GIVE_UP_SHARE = 0.5
_Z_95 = 1.959964


class Figures(msgspec.Struct, frozen=True):
    """What one rate came to. Shares are of all requests that were sent; a refused or failed one
    misses every target. Those whose client left early are in `left`, `sent_rate` and lateness
    alone; for a server's own figures, which have them, there are how many of them heard audio
    (heard_left), how much (audio_left_s), and their mean time to the first (ttfa_left_mean_s).

    rate: as asked for; sent_rate: as drawn. attainment: by TTFA in ms, the share that completed
    with audio by then and without a stall; attainment_95: (low, high) of the share at `slo_ms`.
    goodput: requests a second that met `slo_ms`. TTFA percentiles: of the requests that got audio,
    refused and failed ones left out. stalled: share of those with audio that stalled.
    audio_rate: seconds of audio received a second, from the start to the last byte. refused_p99_s
    and refused_max_s: from sending to the end of a refusal. barely_missed: completed requests that
    a server which does not see the last 10 ms may have counted as attained.
    """

    rate: float
    seeds: list[int]
    requests: int
    window_s: float
    sent_rate: float
    slo_ms: int
    attainment: dict[int, float]
    attainment_95: tuple[float, float]
    goodput: float
    ttfa_p50_s: float | None
    ttfa_p90_s: float | None
    ttfa_p99_s: float | None
    ttfa_mean_s: float | None
    stalled: float
    stall_s: float
    completed: int
    refused: int
    failed: int
    audio_s: float
    audio_rate: float
    late_p99_s: float
    late_max_s: float
    within_1_s: float
    errors: dict[str, int]
    left: int = 0
    audio_left_s: float = 0.0
    heard_left: int = 0
    ttfa_left_mean_s: float | None = None
    refused_p99_s: float | None = None
    refused_max_s: float | None = None
    barely_missed: int = 0

    @property
    def valid(self) -> bool:
        return self.late_p99_s <= LATE_S


class Capacity(msgspec.Struct, frozen=True):
    """The highest tested rate at which attainment is at least `goal`, there and at every lower one.

    rate: 0 when the lowest tested rate already misses. at_least: no tested rate misses, so the
    true figure may be higher. misses_at: the lowest rate that misses.
    """

    goal: float
    rate: float
    at_least: bool
    misses_at: float | None


class Window(msgspec.Struct, frozen=True):
    """One seed at one rate, arrivals in [0, window_s)."""

    rate: float
    seed: int
    window_s: float
    records: list[Record]

    @property
    def span_s(self) -> float:
        """Seconds from the start to the last byte, `window_s` at least."""
        ends = (record.due_s + record.late_s + record.end_s for record in self.records)
        return max(self.window_s, max(ends, default=0.0))


def figures(windows: Sequence[Window], slo_ms: int) -> Figures:
    """Figures of windows of one rate, pooled."""
    everyone = [record for window in windows for record in window.records]
    records = [record for record in everyone if record.outcome != "left"]
    left = [record for record in everyone if record.outcome == "left"]
    window_s = sum(window.window_s for window in windows)
    sent = len(records)
    heard = [record for record in records if record.ttfa_s is not None]
    ttfas = [record.ttfa_s for record in heard if record.ttfa_s is not None]
    ttfas_left = [record.ttfa_s for record in left if record.ttfa_s is not None]
    met = {
        limit_ms: sum(_met(record, limit_ms) for record in records)
        for limit_ms in sorted({*TTFA_MS, slo_ms})
    }
    late = [record.late_s for record in everyone]
    outcomes = [record.outcome for record in records]
    refusals = [record.end_s for record in records if record.outcome == "refused"]
    return Figures(
        rate=windows[0].rate,
        seeds=[window.seed for window in windows],
        requests=sent,
        window_s=window_s,
        sent_rate=len(everyone) / window_s,
        slo_ms=slo_ms,
        attainment={limit_ms: _share(count, sent) for limit_ms, count in met.items()},
        attainment_95=wilson(met[slo_ms], sent),
        goodput=met[slo_ms] / window_s,
        ttfa_p50_s=_percentile(ttfas, 50),
        ttfa_p90_s=_percentile(ttfas, 90),
        ttfa_p99_s=_percentile(ttfas, 99),
        ttfa_mean_s=_mean(ttfas),
        stalled=_share(sum(map(_stalled, heard)), len(heard)),
        stall_s=sum(record.stall_s for record in heard),
        completed=outcomes.count("completed"),
        refused=outcomes.count("refused"),
        failed=outcomes.count("failed"),
        audio_s=sum(record.audio_s for record in heard),
        audio_rate=sum(record.audio_s for record in heard)
        / sum(window.span_s for window in windows),
        late_p99_s=_percentile(late, 99) or 0.0,
        late_max_s=max(late, default=0.0),
        within_1_s=_share(sum(ttfa <= GIVE_UP_S for ttfa in ttfas), sent),
        errors=_errors(records),
        left=len(left),
        audio_left_s=sum(record.audio_s for record in left),
        heard_left=len(ttfas_left),
        ttfa_left_mean_s=_mean(ttfas_left),
        refused_p99_s=_percentile(refusals, 99),
        refused_max_s=max(refusals, default=None),
        barely_missed=sum(_met(record, slo_ms, WAY_S) for record in records) - met[slo_ms],
    )


def capacity(points: Sequence[Figures], goal: float) -> Capacity:
    """From the pooled figures of the tested rates, in any order."""
    best = 0.0
    for point in sorted(points, key=lambda point: point.rate):
        if point.attainment[point.slo_ms] < goal:
            return Capacity(goal, best, at_least=False, misses_at=point.rate)
        best = point.rate
    return Capacity(goal, best, at_least=True, misses_at=None)


def crossing(points: Sequence[Figures], goal: float) -> float | None:
    """Where attainment falls through `goal`, by a straight line between the last tested rate that
    meets it, with all below, and the next. None when no tested rate misses, or all do."""
    ordered = sorted(points, key=lambda point: point.rate)
    for met, missed in itertools.pairwise(ordered):
        high, low = met.attainment[met.slo_ms], missed.attainment[missed.slo_ms]
        if high < goal:
            return None
        if low < goal:
            return met.rate + (missed.rate - met.rate) * (high - goal) / (high - low)
    return None


def wilson(met: int, sent: int) -> tuple[float, float]:
    """95 % interval of a share, as if requests were independent; sharing a server widens it."""
    if sent == 0:
        return 0.0, 1.0
    share, z2 = met / sent, _Z_95**2
    middle = share + z2 / (2 * sent)
    spread = _Z_95 * math.sqrt(share * (1 - share) / sent + z2 / (4 * sent**2))
    low, high = (middle - spread) / (1 + z2 / sent), (middle + spread) / (1 + z2 / sent)
    return max(0.0, low), min(1.0, high)


def _met(record: Record, limit_ms: int, leeway_s: float = 0.0) -> bool:
    """Whether it completed in time without a stall, give or take."""
    if record.outcome != "completed" or record.ttfa_s is None:
        return False
    return record.ttfa_s <= limit_ms / 1000 + leeway_s and record.stall_s < STALL_S + leeway_s


def _stalled(record: Record) -> bool:
    return record.stall_s >= STALL_S


def _share(count: int, of: int) -> float:
    return count / of if of else 0.0


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _percentile(values: Sequence[float], percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values else None


def _errors(records: Sequence[Record]) -> dict[str, int]:
    """The commonest messages of requests that did not complete; of refusals the code alone."""
    counts: dict[str, int] = {}
    for record in records:
        if record.outcome != "completed":
            refused = record.outcome == "refused"
            error = record.error.partition(":")[0] if refused else record.error
            message = f"{record.status} {error}".strip()
            counts[message] = counts.get(message, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:10])
