"""The text of one utterance on its way from a WebSocket client to the model."""

from dataclasses import replace

import numpy as np

from voxserve.api.speech_request import SpeechPlan, check_length
from voxserve.plugin import HostLogic, LiveText
from voxserve.requests import Int32Array, Prompt
from voxserve.text.clean import LiveCleaner, ends_sentence, speakable

_TAIL_CHARS = 16


class UtteranceText:
    """With a model that streams text, rows can be taken while more text comes; otherwise the
    prompt is there once the text has ended.

    chars: taken from the client so far. ended: no more comes. speakable: something can be spoken.
    input_tokens: text rows so far.
    """

    def __init__(self, host: HostLogic, plan: SpeechPlan, max_chars: int) -> None:
        """Raises InvalidRequestError when the model cannot honour the request."""
        self.chars = 0
        self.ended = False
        self.speakable = False
        self.input_tokens = 0
        self._host = host
        self._plan = plan
        self._max_chars = max_chars
        self._cleaner = LiveCleaner()
        # The rules look at what follows a number too, so that they need the whole text.
        streams = host.info.text_streaming and not plan.normalise
        self._live: LiveText | None = host.live_text(plan.request) if streams else None
        self._pieces: list[str] = []
        self._rows: list[Int32Array] = []
        self._tail = ""

    @property
    def startable(self) -> bool:
        """`prompt` can be asked for."""
        return self.speakable and (self.ended or bool(self._rows))

    @property
    def ends_sentence(self) -> bool:
        return ends_sentence(self._tail)

    @property
    def silent(self) -> bool:
        """It has ended, and there is nothing to speak."""
        return self.ended and not self.speakable

    def append(self, piece: str) -> None:
        """Raises InvalidRequestError; then the piece was not taken."""
        check_length(self.chars + len(piece), self._max_chars)
        settled = self._cleaner.feed(piece)
        self.chars += len(piece)
        self._tail = (self._tail + piece)[-_TAIL_CHARS:]
        self._take(settled)

    def end(self) -> None:
        """Raises InvalidRequestError when half a character is left over."""
        self.ended = True
        self._take(self._cleaner.end())
        if self._live is not None:
            self._put(self._live.end())

    def prompt(self) -> Prompt:
        """Raises InvalidRequestError. Rows that arrive later come from `rows`."""
        if self._live is None:
            text = self._plan.said("".join(self._pieces))
            return self._host.prompt(replace(self._plan.request, text=text))
        return self._live.prompt(self.rows(), self.ended)

    def rows(self) -> Int32Array:
        """The rows [n, inject_columns] that were not taken yet."""
        rows, self._rows = self._rows, []
        if not rows:
            return np.zeros((0, self._host.spec.inject_columns), np.int32)
        return np.concatenate(rows)

    def _take(self, settled: str) -> None:
        if not settled:
            return
        self.speakable = self.speakable or speakable(settled)
        if self._live is None:
            self._pieces.append(settled)
        else:
            self._put(self._live.append(settled))

    def _put(self, rows: Int32Array) -> None:
        if len(rows):
            self._rows.append(rows)
            self.input_tokens += len(rows)
