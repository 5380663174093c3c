"""How recent requests ended, for `GET /v1/audio/speech/{request_id}`."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal

KEPT = 4096
KEPT_S = 15 * 60.0


@dataclass(slots=True)
class Outcome:
    """outcome: `running` until the end. Times in milliseconds; ttfa_ms: request to first audio.

    stalls: pauses of a player that started at the first byte; stalled_ms: their sum.
    played_ms: what the client said it had played.
    """

    request_id: str
    created: float
    outcome: Literal["running", "completed", "cancelled", "failed"] = "running"
    finish_reason: str | None = None
    error: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    audio_ms: int = 0
    ttfa_ms: float | None = None
    queue_ms: float | None = None
    stalls: int = 0
    stalled_ms: float = 0.0
    seed: int | None = None
    voice: str | None = None
    played_ms: float | None = None

    def usage(self) -> dict[str, Any]:
        """Token counts as the OpenAI API names them."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
            "input_token_details": {"text_tokens": self.input_tokens, "audio_tokens": 0},
        }

    def public(self) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": "audio.speech.outcome",
            "created": int(self.created),
            "outcome": self.outcome,
            "finish_reason": self.finish_reason,
            "error": self.error,
            "usage": self.usage(),
            "audio_ms": self.audio_ms,
            "ttfa_ms": self.ttfa_ms,
            "queue_ms": self.queue_ms,
            "stalls": self.stalls,
            "stalled_ms": self.stalled_ms,
            "seed": self.seed,
            "voice": self.voice,
            "played_ms": self.played_ms,
        }


class Outcomes:
    """The last `KEPT` outcomes, none older than `KEPT_S`. Each belongs to the API key that asked
    for it, as clients choose their ids: nobody else's is seen or replaced. key_id: as KeyRing.check
    gives it."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str], tuple[float, Outcome]] = OrderedDict()

    def open(self, request_id: str, key_id: str) -> Outcome:
        """A new running entry; an older one of the same id and key is replaced."""
        outcome = Outcome(request_id, time.time())
        self._entries.pop((key_id, request_id), None)
        self._entries[key_id, request_id] = (time.monotonic(), outcome)
        self._expire()
        return outcome

    def get(self, request_id: str, key_id: str) -> Outcome | None:
        self._expire()
        entry = self._entries.get((key_id, request_id))
        return entry[1] if entry else None

    def _expire(self) -> None:
        oldest_kept = time.monotonic() - KEPT_S
        while self._entries:
            since, _ = next(iter(self._entries.values()))
            if len(self._entries) <= KEPT and since >= oldest_kept:
                break
            self._entries.popitem(last=False)
