"""The server's own counters, and whether they tell the same story as the client."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from voxserve.bench.statistics import WAY_S, Figures

METRICS = "/metrics"
TOLERANCE = 0.02
_COUNTERS = ("_total", "_sum", "_count")
_SAMPLE = re.compile(r"(\w+)(\{.*\})? (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure as the client and as the server counted it. tolerance: an absolute one."""

    name: str
    client: float
    server: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        return abs(self.client - self.server) <= self.tolerance


def changes(before: bytes | None, after: bytes | None) -> dict[str, float]:
    """How far each counter moved between two Prometheus pages, by name and labels."""
    if before is None or after is None:
        return {}
    old, new = _counters(before), _counters(after)
    moved = {name: value - old.get(name, 0.0) for name, value in new.items()}
    return {name: change for name, change in moved.items() if change}


def samples(page: bytes | None) -> Iterator[tuple[str, str, str]]:
    """Name, labels in their braces, and value of every line of a Prometheus page that has them."""
    for line in (page or b"").decode("utf-8", "replace").splitlines():
        if match := _SAMPLE.fullmatch(line):
            yield match[1], match[2] or "", match[3]


def labels_of(text: str) -> dict[str, str]:
    """By name. text: labels in their braces, whatever stands before them."""
    return dict(_LABEL.findall(text))


def compare(metrics: dict[str, float], points: Sequence[Figures]) -> list[Comparison]:
    """What can be compared; nothing for a server that does not count as ours does."""
    if not any(name.startswith("voxserve_slo_total") for name in metrics):
        return []
    heard = [point for point in points if point.ttfa_mean_s is not None]
    spoke = sum(point.requests - point.refused - point.failed for point in heard)
    met = sum(point.attainment[point.slo_ms] * point.requests for point in points)
    # To whom it went is no matter to a server that counts what it sent.
    audio_s = sum(point.audio_s + point.audio_left_s for point in points)
    barely = sum(point.barely_missed for point in points)
    refused = sum(point.refused for point in points)
    found = [
        _pair("completed", spoke, _sum(metrics, "voxserve_e2e_seconds_count")),
        _pair("refused", refused, _sum(metrics, "slo_total", "rejected")),
        _pair("SLO met", met, _sum(metrics, "slo_total", "met"), barely),
        _pair("audio, s", audio_s, _sum(metrics, "audio_seconds_total")),
    ]
    count = _sum(metrics, "ttfa_seconds_count")
    if heard and count:
        means = [(point.ttfa_mean_s or 0.0, point.completed) for point in heard]
        means += [(point.ttfa_left_mean_s or 0.0, point.heard_left) for point in points]
        client_s = sum(mean * n for mean, n in means) / max(1, sum(n for _, n in means))
        server_s = _sum(metrics, "ttfa_seconds_sum") / count
        tolerance_s = max(WAY_S, TOLERANCE * server_s)
        found.append(Comparison("mean TTFA, s", client_s, server_s, tolerance_s))
    return found


def _pair(name: str, client: float, server: float, more: float = 0.0) -> Comparison:
    """more: what is allowed beyond the share."""
    return Comparison(name, client, server, TOLERANCE * max(client, server, 1.0) + more)


def _counters(page: bytes) -> dict[str, float]:
    return {
        name + labels: float(value)
        for name, labels, value in samples(page)
        if name.endswith(_COUNTERS)
    }


def _sum(metrics: dict[str, float], name: str, outcome: str | None = None) -> float:
    """Over all labels but the outcome."""
    total = 0.0
    for key, value in metrics.items():
        labels = labels_of(key)
        if key.partition("{")[0].endswith(name) and outcome in (None, labels.get("outcome")):
            total += value
    return total
