"""What one listener got, and the record that is made of it."""

import json
import time
from dataclasses import dataclass, field

from voxserve.bench.playback import replay
from voxserve.bench.records import Job, Order, Outcome, Record

SAMPLE_BYTES = 2
ERROR_CHARS = 200
REFUSED = (429, 503)
STUB_HEADER = "x-voxserve-stub"
# A forced length that comes out shorter than this share of itself was cut.
WHOLE = 0.98


@dataclass(slots=True)
class Listening:
    """Filled in while a request runs; times are CLOCK_MONOTONIC.

    complete: the response came to its proper end. left: the client went away before, as told.
    problem: what went wrong otherwise. audio: what was heard, where it is kept.
    """

    sent_s: float = 0.0
    status: int = 0
    sample_rate_hz: int = 0
    complete: bool = False
    left: bool = False
    stub: bool = False
    problem: str = ""
    end_s: float | None = None
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    audio: bytearray | None = None

    def hear(self, at_s: float, audio: bytes) -> None:
        """Audio arrived. Pieces of one network read make one arrival."""
        size_bytes = len(audio)
        if self.audio is not None:
            self.audio += audio
        if self.arrivals and self.arrivals[-1][0] == at_s:
            size_bytes += self.arrivals.pop()[1]
        self.arrivals.append((at_s, size_bytes))

    def leave(self) -> None:
        """The client goes away now."""
        self.left = not self.complete
        self.end_s = time.monotonic()

    def record(self, order: Order, job: Job) -> Record:
        """The request's record, whatever state it is in."""
        rate = SAMPLE_BYTES * (self.sample_rate_hz or job.sample_rate_hz)
        pieces = [(at_s - self.sent_s, size / rate) for at_s, size in self.arrivals]
        playback = replay(pieces)
        audio_s = sum(seconds for _, seconds in pieces)
        if self.end_s is None:
            self.end_s = time.monotonic()
            self.problem = f"not over {job.wait_s:g} s after the last request"
        outcome, error = self._outcome(order, audio_s, job.frame_s)
        arrivals = [(at_s - self.sent_s, size) for at_s, size in self.arrivals]
        return Record(
            index=order.index,
            id=order.id,
            words=len(order.text.split()),
            due_s=order.due_s,
            late_s=self.sent_s - (job.start_s + order.due_s),
            outcome=outcome,
            status=self.status,
            error=error,
            ttfa_s=pieces[0][0] if pieces else None,
            end_s=self.end_s - self.sent_s,
            audio_s=audio_s,
            stall_s=playback.stall_s,
            stops=playback.stops,
            chunks=len(pieces),
            stub=self.stub,
            arrivals=arrivals if job.keep_arrivals else None,
            audio=None if self.audio is None else bytes(self.audio),
        )

    def _outcome(self, order: Order, audio_s: float, frame_s: float) -> tuple[Outcome, str]:
        if self.status in REFUSED:
            return "refused", self.problem
        if self.left:
            return "left", ""
        if self.status != 200:
            return "failed", self.problem or "no response"
        if not self.complete:
            return "failed", self.problem or "cut off before its end"
        if not self.arrivals:
            return "failed", "no audio"
        if order.frames is not None and audio_s < WHOLE * order.frames * frame_s:
            return "failed", f"{audio_s:.2f} s of audio, {order.frames * frame_s:.2f} s asked for"
        return "completed", ""


def reason(body: bytes) -> str:
    """What an error body says, in one line."""
    try:
        error = json.loads(body)["error"]
        text = f"{error['code']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        text = body.decode("utf-8", "replace")
    return " ".join(text.split())[:ERROR_CHARS]
