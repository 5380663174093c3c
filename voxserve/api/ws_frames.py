"""How one utterance's audio is framed: binary, JSON or tagged binary."""

import base64
import json
import struct
from typing import Literal

from voxserve.audio.output import Piece

Transport = Literal["binary", "json", "tagged"]

TAG_VERSION = 1
LAST = 1
_TAG = struct.Struct("<BBHIQ")


class AudioFrames:
    """Frames of one utterance. number: of its context, as `audio.start` gave it."""

    def __init__(self, transport: Transport, context: str, number: int, utterance: int) -> None:
        self._transport = transport
        self._context = context
        self._number = number
        self._utterance = utterance
        self._samples = 0
        self._frames = 0

    def frame(self, piece: Piece, pcm_hz: int, sentence: int, last: bool) -> str | bytes:
        """pcm_hz: in which the piece counts its samples."""
        data, first_sample = piece.data, self._samples
        self._samples += piece.samples
        self._frames += 1
        if self._transport == "binary":
            return data
        if self._transport == "tagged":
            flags = LAST if last else 0
            return _TAG.pack(TAG_VERSION, flags, self._number, self._utterance, first_sample) + data
        return json.dumps(
            {
                "type": "audio.chunk",
                "context_id": self._context,
                "utterance_index": self._utterance,
                "sentence_index": sentence,
                "chunk_id": self._frames - 1,
                "audio_b64": base64.b64encode(data).decode(),
                "audio_start_ms": round(first_sample * 1000 / pcm_hz),
            },
            separators=(",", ":"),
        )
