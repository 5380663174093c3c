"""A speech request over HTTP on its way to an answer."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from voxserve.api.delivery import Delivery
from voxserve.api.speech_request import SpeechPlan

Style = Literal["raw", "sse", "whole"]
_NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """style: raw bytes as they are made, server-sent events, or one body of known length.

    ignored: names of unknown fields. ttfa_s: the target, None for `whole`. timeout_s: for
    everything from arrival to the last byte.
    """

    request_id: str
    plan: SpeechPlan
    style: Style
    ignored: tuple[str, ...]
    ttfa_s: float | None
    timeout_s: float

    @property
    def content_type(self) -> str:
        if self.style == "sse":
            return "text/event-stream; charset=utf-8"
        output = self.plan.output
        return output.format.content_type.format(rate=output.sample_rate_hz)

    def headers(self, delivery: Delivery) -> dict[str, str]:
        """Of every successful answer, whatever its style. The request id is added elsewhere."""
        plan = self.plan
        headers = {
            "Content-Type": self.content_type,
            "X-Sample-Rate": str(plan.output.sample_rate_hz),
            "X-Channels": "1",
            "X-Seed": str(plan.request.seed),
            "Server-Timing": _server_timing(delivery),
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
        if plan.output.format.bit_depth is not None:
            headers["X-Bit-Depth"] = str(plan.output.format.bit_depth)
        if plan.request.voice is not None:
            headers["X-Voice"] = quote(plan.request.voice, safe=" ")
        if self.ignored:
            shown = self.ignored[:_NAMES_SHOWN]
            headers["X-Ignored-Fields"] = ", ".join(
                quote(name[:64], safe="", errors="replace") for name in shown
            )
        return headers


def _server_timing(delivery: Delivery) -> str:
    parts = {"queue": delivery.queue_s, "ttfa": delivery.ttfa_s}
    return ", ".join(
        f"{name};dur={seconds * 1000:.1f}" for name, seconds in parts.items() if seconds is not None
    )
