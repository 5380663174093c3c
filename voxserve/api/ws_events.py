"""What a WebSocket client is told about one utterance, in order."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from voxserve.api.outcomes import Outcome
from voxserve.api.speech_request import SpeechPlan
from voxserve.api.ws_frames import AudioFrames, Transport
from voxserve.api.ws_outbox import Outbox
from voxserve.audio.output import Piece

Callback = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Which utterance it is, and whose. number: of the context, for tagged frames."""

    context: str
    number: int
    index: int
    request_id: str
    key_id: str


class Events(Protocol):
    """What an utterance has to say, in whatever dialect the client speaks.

    sent_samples: what the client's socket took. Callbacks run once it has taken what they stand
    behind. Everything but `cancelled` can be taken back by `purge` while it waits to be sent.
    """

    sent_samples: int

    async def room(self) -> None:
        """Until audio may be put."""

    def purge(self) -> None: ...

    def sentence(self, index: int, text: str) -> None:
        """What follows is this sentence. text: of it, as far as it is known."""

    def audio(self, piece: Piece, last: bool, sent: Callable[[int], None]) -> None:
        """A frame of encoded audio; `sent` gets its samples. last: of the sentence."""

    def done(self, finish_reason: str, audio_ms: int) -> None:
        """The sentence is complete."""

    def session_done(
        self, sentences: int, audio_ms: int, usage: dict[str, Any], sent: Callback
    ) -> None:
        """The utterance is complete."""

    def cancelled(self, reason: str, generated_ms: int, sent_ms: int, sent: Callback) -> None:
        """Nothing more of the utterance follows."""


class UtteranceEvents:
    """`Events` of `/v1/audio/speech/stream`."""

    def __init__(
        self, outbox: Outbox, place: Place, plan: SpeechPlan, transport: Transport
    ) -> None:
        self.sent_samples = 0
        self._outbox = outbox
        self._place = place
        self._plan = plan
        self._frames = AudioFrames(transport, place.context, place.number, place.index)
        self._started = False
        self._sentence = 0
        self._text = ""
        self._bytes = 0

    async def room(self) -> None:
        await self._outbox.room()

    def purge(self) -> None:
        self._outbox.purge(self)

    def sentence(self, index: int, text: str) -> None:
        self._sentence, self._text = index, text
        self._started = False
        self._bytes = 0

    def start(self) -> None:
        """`audio.start`, once a sentence."""
        if self._started:
            return
        self._started = True
        self._event(
            "audio.start",
            {
                "sentence_index": self._sentence,
                "sentence_text": self._text,
                "context_number": self._place.number,
                "request_id": self._place.request_id,
                "format": self._plan.output.format.name,
                "sample_rate": self._plan.output.sample_rate_hz,
                "channels": 1,
                "seed": self._plan.request.seed,
            },
        )

    def audio(self, piece: Piece, last: bool, sent: Callable[[int], None]) -> None:
        """A frame of encoded audio; `sent` gets its samples."""
        self.start()
        self._bytes += len(piece.data)
        frame = self._frames.frame(piece, self._plan.output.pcm_hz, self._sentence, last)

        def taken() -> None:
            self.sent_samples += piece.samples
            sent(piece.samples)

        self._outbox.audio(self, frame, taken)

    def done(self, finish_reason: str, audio_ms: int) -> None:
        """The sentence is complete."""
        self.start()
        self._event(
            "audio.done",
            {
                "sentence_index": self._sentence,
                "total_bytes": self._bytes,
                "audio_ms": audio_ms,
                "finish_reason": finish_reason,
                "error": False,
            },
        )

    def session_done(
        self, sentences: int, audio_ms: int, usage: dict[str, Any], sent: Callback
    ) -> None:
        """The utterance is complete."""
        content = {"total_sentences": sentences, "audio_ms": audio_ms, "usage": usage}
        self._event("session.done", content, sent)

    def cancelled(self, reason: str, generated_ms: int, sent_ms: int, sent: Callback) -> None:
        content = {"reason": reason, "generated_ms": generated_ms, "sent_ms": sent_ms}
        self._outbox.event({"type": "audio.cancelled", **self._where(), **content}, None, sent)

    def _event(self, kind: str, content: dict[str, Any], sent: Callback | None = None) -> None:
        self._outbox.event({"type": kind, **self._where(), **content}, self, sent)

    def _where(self) -> dict[str, Any]:
        return {"context_id": self._place.context, "utterance_index": self._place.index}


NO_USAGE = Outcome("", 0.0).usage()
