"""The Prometheus metrics that the API process counts itself; engine_metrics.py has the rest."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

import voxserve

TTFA_BUCKETS_S = (0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 0.75, 1, 2, 5)
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
_LONG_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
_SLACK = (0, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)
_RTF = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 5)
OWN_LABELS = ("model", "replica")


class Metrics:
    """One registry a server. Every metric carries the labels `model` and `replica`."""

    def __init__(self, model: str, replica: str = "0") -> None:
        self.registry = CollectorRegistry()
        self.own = (model, replica)
        self.requests = self._counter("requests", "Requests", ("route", "status", "format"))
        self.in_flight = self._gauge("requests_in_flight", "Speech requests and utterances running")
        self.ttfa = self._histogram("ttfa_seconds", "Request to first audio", TTFA_BUCKETS_S)
        self.queue = self._histogram("queue_seconds", "Request to its prefill", _SECONDS)
        self.deferred = self._histogram(
            "prefill_deferred_seconds", "Prefills held back for running streams", _SECONDS
        )
        self.e2e = self._histogram("e2e_seconds", "Request to its end", _LONG_SECONDS)
        self.rtf = self._histogram("rtf", "Time to make the audio / its duration", _RTF)
        self.audio = self._counter("audio_seconds", "Audio delivered")
        self.underrun = self._histogram("underrun_seconds", "Pauses of a player", _SECONDS)
        self.slack = self._histogram("chunk_slack_seconds", "Audio left when a chunk comes", _SLACK)
        self.slo = self._counter("slo", "Streams by service level", ("outcome",))
        self.aborts = self._counter("aborts", "Requests cut short", ("reason",))
        self.release = self._histogram("abort_release_seconds", "Cancel to its answer", _SECONDS)
        self.runaway = self._counter("runaway_stops", "Requests ended by the runaway guard")
        self.sessions = self._gauge("ws_sessions", "Open WebSocket sessions")
        self.ws_cancel = self._histogram("ws_cancel_seconds", "input.cancel to its event", _SECONDS)
        self.send_buffer = self._gauge("send_buffer_bytes", "Bytes waiting for WebSocket clients")
        self.slow_closed = self._counter("slow_client_closed", "Clients cut for not reading")
        self.encoder = BoundHistogram(
            Histogram(
                "voxserve_encoder_seconds",
                "A piece of PCM to its encoded bytes, the wait for a thread included",
                (*OWN_LABELS, "format"),
                buckets=_SECONDS,
                registry=self.registry,
            ),
            self.own,
        )
        self.gc_pause = self._histogram("gc_pause_seconds", "Garbage collections", _SECONDS)
        self.loop_lag = self._histogram("loop_lag_seconds", "Lateness of the event loop", _LAGS)
        self.tasks = self._gauge("loop_tasks", "Tasks of the event loop")
        build = Gauge(
            "voxserve_build_info", "Always 1", (*OWN_LABELS, "version"), registry=self.registry
        )
        build.labels(*self.own, voxserve.__version__).set(1)

    def _counter(self, name: str, what: str, labels: Sequence[str] = ()) -> "BoundCounter":
        return BoundCounter(
            Counter(f"voxserve_{name}", what, (*OWN_LABELS, *labels), registry=self.registry),
            self.own,
        )

    def _gauge(self, name: str, what: str) -> Gauge:
        gauge = Gauge(f"voxserve_{name}", what, OWN_LABELS, registry=self.registry)
        return gauge.labels(*self.own)

    def _histogram(self, name: str, what: str, buckets: Sequence[float]) -> Histogram:
        histogram = Histogram(
            f"voxserve_{name}", what, OWN_LABELS, buckets=buckets, registry=self.registry
        )
        return histogram.labels(*self.own)


class BoundCounter:
    """A counter whose `model` and `replica` are filled in."""

    def __init__(self, counter: Counter, own: tuple[str, str]) -> None:
        self._counter = counter
        self._own = own
        self._children: dict[tuple[str, ...], Counter] = {}

    def add(self, *labels: str, amount: float = 1.0) -> None:
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._counter.labels(*self._own, *labels)
        child.inc(amount)


class BoundHistogram:
    """A histogram whose `model` and `replica` are filled in."""

    def __init__(self, histogram: Histogram, own: tuple[str, str]) -> None:
        self._histogram = histogram
        self._own = own

    def observe(self, seconds: float, *labels: str) -> None:
        self._histogram.labels(*self._own, *labels).observe(seconds)
