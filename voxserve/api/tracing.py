"""OpenTelemetry spans of each request: queue, prefill, chunk, encode, send. Off unless
`api.otlp_endpoint` is set; the packages come with the extra `otel`.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import voxserve

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer


class Tracing:
    """Makes the spans; without a provider it makes none and costs nothing."""

    def __init__(self, provider: "TracerProvider | None" = None) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("voxserve", voxserve.__version__) if provider else None

    @contextlib.contextmanager
    def parent(self, headers: Mapping[bytes, bytes]) -> Iterator[None]:
        """Spans begun inside, in tasks begun inside too, belong to the trace of `traceparent`."""
        if self._tracer is None:
            yield
            return
        from opentelemetry import context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        names = (b"traceparent", b"tracestate")
        carrier = {name.decode(): headers.get(name, b"").decode("latin-1") for name in names}
        token = context.attach(TraceContextTextMapPropagator().extract(carrier))
        try:
            yield
        finally:
            context.detach(token)

    def begin(self, request_id: str) -> "RequestSpans | None":
        """The spans of a request that arrives now; None when nobody collects them."""
        return None if self._tracer is None else RequestSpans(self._tracer, request_id)

    def close(self) -> None:
        """Send what is left. Blocks until it is sent."""
        if self._provider is not None:
            self._provider.shutdown()


class RequestSpans:
    """A span `speech` with one below it for each stage. Times are those of `time.monotonic`."""

    def __init__(self, tracer: "Tracer", request_id: str) -> None:
        self._tracer = tracer
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self._root: Span = tracer.start_span("speech", attributes={"request_id": request_id})

    def add(self, name: str, begin_s: float, end_s: float) -> None:
        """A stage that took from `begin_s` to `end_s`."""
        from opentelemetry.trace import set_span_in_context

        below = set_span_in_context(self._root)
        span = self._tracer.start_span(name, context=below, start_time=self._ns(begin_s))
        span.end(self._ns(end_s))

    def end(self, outcome: str, audio_ms: float, error: str | None = None) -> None:
        """The request is over. error: its code."""
        from opentelemetry.trace import Status, StatusCode

        self._root.set_attributes({"outcome": outcome, "audio_ms": audio_ms})
        if error is not None:
            self._root.set_attribute("error.type", error)
            self._root.set_status(Status(StatusCode.ERROR))
        self._root.end()

    def _ns(self, monotonic_s: float) -> int:
        return int(monotonic_s * 1e9) + self._offset_ns


def tracing_to(endpoint: str | None) -> Tracing:
    """Tracing that sends to an OTLP collector over HTTP, its full URL given; off for None.

    Raises ValueError when the packages for it are not installed.
    """
    if endpoint is None:
        return Tracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ValueError(
            "api.otlp_endpoint is set, but OpenTelemetry is missing: pip install 'voxserve[otel]'"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "voxserve"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return Tracing(provider)
