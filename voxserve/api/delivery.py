"""The account of one request from arrival to end: timing, playback, outcome, metrics."""

import time

from voxserve import wire
from voxserve.api.outcomes import Outcome
from voxserve.api.playback import Playback
from voxserve.api.service import Service
from voxserve.audio.output import Output
from voxserve.errors import UnavailableError, VoxserveError

BYTES_PER_SAMPLE = 2


class Delivery:
    """ttfa_s: the target, None for buffered requests, which have no service level.

    key_id: whose request it is. pcm_bytes: from the engine. samples: written, as the output counts
    them. Exactly one of `complete`, `cancelled` and `failed` ends it.
    """

    def __init__(
        self,
        service: Service,
        request_id: str,
        key_id: str,
        output: Output,
        ttfa_s: float | None,
    ) -> None:
        self.outcome: Outcome = service.outcomes.open(request_id, key_id)
        self.playback = Playback()
        self.pcm_bytes = 0
        self.samples = 0
        self.queue_s: float | None = None
        self._metrics = service.metrics
        self._output = output
        self._target_s = ttfa_s
        self._begin = time.monotonic()
        self._ttfa_s: float | None = None
        self._made_at = self._waits_since = self._encoded_at = self._begin
        self._spans = service.tracing.begin(request_id)

    @property
    def sent_s(self) -> float:
        """Seconds of audio written so far."""
        return self.playback.audio_s

    @property
    def ttfa_s(self) -> float | None:
        return self._ttfa_s

    @property
    def made_s(self) -> float:
        """Seconds of audio, as they will be heard, that came from the engine."""
        samples = self.pcm_bytes / BYTES_PER_SAMPLE
        return samples / self._output.native_hz / self._output.speed

    @property
    def taken_s(self) -> float:
        """Seconds for which the engine may go on: buffered requests are all taken here."""
        return self.made_s if self._target_s is None else self.sent_s

    def seconds(self, samples: int) -> float:
        return samples / self._output.pcm_hz

    def started(self, message: wire.Started) -> None:
        """The request left the queue."""
        self.queue_s = message.queue_s
        self.outcome.queue_ms = _ms(message.queue_s)
        self._metrics.queue.observe(message.queue_s)
        self._metrics.deferred.observe(message.deferred_s)
        self._waits_since = self._begin + message.queue_s
        self._span("queue", self._begin, self._waits_since)

    def made(self, pcm: bytes) -> None:
        """A chunk came from the engine."""
        self._made_at = time.monotonic()
        self._span("chunk" if self.pcm_bytes else "prefill", self._waits_since, self._made_at)
        self._waits_since = self._made_at
        self.pcm_bytes += len(pcm)
        if self._target_s is not None and self.playback.ends_at is not None:
            self._metrics.slack.observe(self.playback.ends_at - self._made_at)

    def first_audio(self) -> None:
        """Audio is ready to be sent; the first call counts."""
        self._encoded_at = time.monotonic()
        if self._target_s is not None:
            self._span("encode", self._made_at, self._encoded_at)
        if self._ttfa_s is None:
            self._ttfa_s = self._encoded_at - self._begin
            self.outcome.ttfa_ms = _ms(self._ttfa_s)
            self._metrics.ttfa.observe(self._ttfa_s)

    def wrote(self, samples: int, *, excused: bool = False) -> None:
        """Bytes that hold so many samples went to the client's socket."""
        seconds = self.seconds(samples)
        self.samples += samples
        now = time.monotonic()
        if self._target_s is not None:
            self._span("send", self._encoded_at, now)
        self.playback.wrote(seconds, now, excused=excused or self._target_s is None)
        self.outcome.audio_ms = round(self.sent_s * 1000)
        self.outcome.stalls = self.playback.stalls
        self.outcome.stalled_ms = _ms(self.playback.stalled_s)
        self._metrics.audio.add(amount=seconds)

    def complete(self, finish_reason: str, input_tokens: int, output_tokens: int) -> None:
        self.outcome.outcome = "completed"
        self.outcome.finish_reason = finish_reason
        self.outcome.input_tokens = input_tokens
        self.outcome.output_tokens = output_tokens
        self.outcome.audio_ms = round(self.seconds(self.samples) * 1000)
        if finish_reason == "guard":
            self._metrics.runaway.add()
        made_s = self._made_at - self._begin
        self._metrics.e2e.observe(time.monotonic() - self._begin)
        if self.samples:
            self._metrics.rtf.observe(made_s / self.seconds(self.samples))
        if self._target_s is not None:
            self._metrics.underrun.observe(self.playback.stalled_s)
            self._metrics.slo.add(self._service_level(self._target_s))
        self._end_spans()

    def cancelled(self, reason: str) -> None:
        """The client left or changed its mind: neither met nor missed."""
        self.outcome.outcome = "cancelled"
        self.outcome.finish_reason = "cancelled"
        self._metrics.aborts.add(reason)
        self._end_spans()

    def failed(self, error: VoxserveError) -> None:
        self.outcome.outcome = "failed"
        self.outcome.error = error.code
        refused = isinstance(error, UnavailableError) and not self.pcm_bytes
        if self._target_s is not None:
            self._metrics.slo.add("rejected" if refused else "error")
        if not refused:
            self._metrics.aborts.add(error.code)
        self._end_spans()

    def log_fields(self) -> dict[str, object]:
        """For the access log."""
        outcome = self.outcome
        return {
            "outcome": outcome.outcome,
            "finish_reason": outcome.finish_reason,
            "error": outcome.error,
            "audio_ms": outcome.audio_ms,
            "ttfa_ms": outcome.ttfa_ms,
            "queue_ms": outcome.queue_ms,
            "stalls": outcome.stalls,
            "voice": outcome.voice,
        }

    def _span(self, name: str, begin_s: float, end_s: float) -> None:
        if self._spans is not None:
            self._spans.add(name, begin_s, end_s)

    def _end_spans(self) -> None:
        if self._spans is not None:
            self._spans.end(self.outcome.outcome, self.outcome.audio_ms, self.outcome.error)

    def _service_level(self, target_s: float) -> str:
        if self._ttfa_s is not None and self._ttfa_s > target_s:
            return "ttfa"
        return "stall" if self.playback.stalled else "met"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
