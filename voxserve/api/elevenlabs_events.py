"""What an ElevenLabs client hears of one utterance: audio messages, each with its alignment."""

import base64
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from voxserve.api.joined_stream import LETTER_S
from voxserve.api.ws_events import Callback
from voxserve.api.ws_outbox import Outbox
from voxserve.audio.output import Piece
from voxserve.text.split import weight


class AudioMessages:
    """`Events` of one utterance. context: None on a socket that has but one.

    text: what the utterance is known to say so far. Its characters are spread over the audio at a
    common pace, times counted from the beginning of each message: an estimate, since nothing here
    aligns audio with text. What is left at the end goes with the last message.
    """

    def __init__(
        self, outbox: Outbox, context: str | None, pcm_hz: int, text: Callable[[], str]
    ) -> None:
        self.sent_samples = 0
        self._outbox = outbox
        self._context = context
        self._pcm_hz = pcm_hz
        self._text = text
        self._aligned = 0

    async def room(self) -> None:
        await self._outbox.room()

    def purge(self) -> None:
        self._outbox.purge(self)

    def sentence(self, index: int, text: str) -> None:
        """Sentences are nothing to these clients."""

    def audio(self, piece: Piece, last: bool, sent: Callable[[int], None]) -> None:
        duration_ms = round(piece.samples * 1000 / self._pcm_hz)
        alignment = self._alignment(duration_ms, rest=last)
        content = {
            "audio": base64.b64encode(piece.data).decode(),
            "isFinal": False,
            "alignment": alignment,
            "normalizedAlignment": alignment,
        }

        def taken() -> None:
            self.sent_samples += piece.samples
            sent(piece.samples)

        self._outbox.event({**content, **context_of(self._context)}, self, taken)

    def done(self, finish_reason: str, audio_ms: int) -> None:
        """The end of a sentence is nothing to these clients."""

    def session_done(
        self, sentences: int, audio_ms: int, usage: dict[str, Any], sent: Callback
    ) -> None:
        self._outbox.mark(self, sent)

    def cancelled(self, reason: str, generated_ms: int, sent_ms: int, sent: Callback) -> None:
        self._outbox.mark(None, sent)

    def _alignment(self, duration_ms: int, *, rest: bool) -> dict[str, Any] | None:
        characters = self._text()[self._aligned :]
        spent_ms, count = 0.0, 0
        while count < len(characters) and (rest or spent_ms < duration_ms):
            spent_ms += weight(characters[count]) * LETTER_S * 1000
            count += 1
        if not count or not duration_ms:
            return None
        self._aligned += count
        starts = [round(duration_ms * at / count) for at in range(count + 1)]
        return {
            "chars": list(characters[:count]),
            "charStartTimesMs": starts[:-1],
            "charDurationsMs": [end - start for start, end in pairwise(starts)],
        }


def context_of(context: str | None) -> dict[str, str]:
    """Both spellings: clients read one or the other."""
    return {} if context is None else {"contextId": context, "context_id": context}
