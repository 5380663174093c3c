"""Prometheus metrics read from the engine's last Stats when somebody asks."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from voxserve import wire
from voxserve.api.engine_client import EngineClient
from voxserve.api.metrics import OWN_LABELS

BATCH_BUCKETS = ("1.0", "2.0", "4.0", "8.0", "16.0", "32.0", "64.0", "+Inf")


class EngineCollector(Collector):
    """own: the values of `OWN_LABELS`. While no engine runs, only what is known without one."""

    def __init__(self, client: EngineClient, own: tuple[str, str]) -> None:
        self._client = client
        self._own = own

    def collect(self) -> Iterator[Metric]:
        yield self._counter("engine_restarts", "Engines started again", self._client.restarts)
        ready = 1.0 if self._client.phase == "ready" else 0.0
        yield self._gauge("ready", "Whether the engine takes requests", {(): ready})
        stats = self._client.stats
        if stats is not None:
            yield from self._from_stats(stats)

    def _from_stats(self, stats: wire.Stats) -> Iterator[Metric]:
        yield self._gauge("requests_waiting", "Admitted by no slot yet", {(): stats.waiting})
        slots = {
            ("free",): float(stats.slots_free),
            ("used",): float(stats.slots_total - stats.slots_free),
        }
        yield self._gauge("codec_slots", "Request slots", slots, ("state",))
        pages: dict[tuple[str, ...], float] = {}
        for pool, (free, total) in stats.pages.items():
            pages[pool, "free"] = free
            pages[pool, "used"] = total - free
        yield self._gauge("kv_pages", "Pages of each pool", pages, ("pool", "state"))
        busy = {(lane,): share for lane, share in stats.lane_busy.items()}
        yield self._gauge("lane_busy_ratio", "Busy share of each lane", busy, ("lane",))
        dispatches = CounterMetricFamily(
            "voxserve_codec_dispatch",
            "Codec launches by lane and reason",
            labels=(*OWN_LABELS, "lane", "reason"),
        )
        for name, count in stats.dispatches.items():
            lane, _, reason = name.partition("/")
            dispatches.add_metric((*self._own, lane, reason), count)
        yield dispatches
        yield self._batch_sizes(stats.codec_rows)
        yield self._counter("prefills", "Requests whose prefill was launched", stats.prefills)
        yield self._gauge("engine_step_age_seconds", "Oldest launch", {(): stats.step_age_s})
        yield self._gauge("engine_loop_seconds", "One turn of the engine", {(): stats.loop_s})

    def _batch_sizes(self, launches: Mapping[str, int]) -> HistogramMetricFamily:
        """launches: how many of each "lane/rows"."""
        by_lane: dict[str, dict[int, int]] = {}
        for name, count in launches.items():
            lane, _, rows = name.partition("/")
            by_lane.setdefault(lane, {})[int(rows)] = count
        sizes = HistogramMetricFamily(
            "voxserve_codec_batch_size",
            "Chunks decoded together, by lane",
            labels=(*OWN_LABELS, "lane"),
        )
        for lane, counts in by_lane.items():
            buckets = [
                (limit, sum(count for rows, count in counts.items() if rows <= float(limit)))
                for limit in BATCH_BUCKETS
            ]
            total = sum(rows * count for rows, count in counts.items())
            sizes.add_metric((*self._own, lane), buckets, sum_value=total)
        return sizes

    def _gauge(
        self,
        name: str,
        what: str,
        values: Mapping[Any, float],
        labels: tuple[str, ...] = (),
    ) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(f"voxserve_{name}", what, labels=(*OWN_LABELS, *labels))
        for label_values, value in values.items():
            gauge.add_metric((*self._own, *label_values), value)
        return gauge

    def _counter(self, name: str, what: str, value: float) -> CounterMetricFamily:
        counter = CounterMetricFamily(f"voxserve_{name}", what, labels=OWN_LABELS)
        counter.add_metric(self._own, value)
        return counter
