"""Spans of a request, through the same account that every request goes through."""

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from voxserve import wire
from voxserve.api.auth import NO_KEY
from voxserve.api.delivery import Delivery
from voxserve.api.service import Service
from voxserve.api.tracing import Tracing
from voxserve.audio.output import output_for
from voxserve.config import Config
from voxserve.errors import GenerationError

TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
HEADERS = {b"traceparent": f"00-{TRACE:032x}-{PARENT:016x}-01".encode()}


def _tracing() -> tuple[Tracing, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider), exporter


def _delivery(tracing: Tracing) -> Delivery:
    service = Service(Config())
    service.tracing = tracing
    output = output_for("pcm", 24_000, None, 1.0)
    with tracing.parent(HEADERS):
        return Delivery(service, "request-1", NO_KEY, output, ttfa_s=0.2)


def _by_name(exporter: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    named: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        named.setdefault(span.name, []).append(span)
    return named


def test_stages_of_a_request() -> None:
    tracing, exporter = _tracing()
    delivery = _delivery(tracing)
    delivery.started(wire.Started(1, 0.0))
    for _ in range(2):
        delivery.made(bytes(3840))
        delivery.first_audio()
        delivery.wrote(1920)
    delivery.complete("stop", 3, 2)
    spans = _by_name(exporter)
    counts = {name: len(same) for name, same in spans.items()}
    assert counts == {"queue": 1, "prefill": 1, "chunk": 1, "encode": 2, "send": 2, "speech": 1}
    (root,) = spans.pop("speech")
    assert root.context is not None and root.parent is not None
    assert (root.context.trace_id, root.parent.span_id) == (TRACE, PARENT)
    assert root.attributes is not None
    assert dict(root.attributes) == {
        "request_id": "request-1",
        "outcome": "completed",
        "audio_ms": 160,
    }
    for stage in (span for same in spans.values() for span in same):
        assert stage.parent is not None and stage.parent.span_id == root.context.span_id
        assert stage.start_time is not None and stage.end_time is not None
        assert stage.start_time <= stage.end_time
    (prefill,), (chunk,) = spans["prefill"], spans["chunk"]
    assert prefill.end_time == chunk.start_time


def test_failure_is_told() -> None:
    tracing, exporter = _tracing()
    _delivery(tracing).failed(GenerationError("broken", code="no_audio"))
    (root,) = exporter.get_finished_spans()
    assert root.status.status_code is StatusCode.ERROR
    assert root.attributes is not None and root.attributes["error.type"] == "no_audio"


def test_off_makes_no_spans() -> None:
    assert Tracing().begin("request-1") is None
