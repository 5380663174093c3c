"""The three ways in which audio leaves over HTTP."""

import base64
import json
from dataclasses import dataclass
from typing import Any, Protocol

from voxserve.api.delivery import Delivery
from voxserve.api.encoding import Encoding
from voxserve.api.errors import error_body
from voxserve.api.response_body import ResponseBody
from voxserve.api.speech_job import SpeechJob
from voxserve.audio.output import Piece
from voxserve.errors import VoxserveError


class Writer(Protocol):
    """Gets the chunks of one request. Raises SlowReaderError from anything that writes, and
    GenerationError from anything that encodes."""

    async def audio(self, pcm: bytes) -> None:
        """One chunk of 16-bit PCM. The first that gives bytes starts the response."""

    async def end(self) -> None:
        """No audio follows; there may have been none at all."""

    async def done(self) -> None:
        """After `end`, once the outcome is known."""

    async def fail(self, error: VoxserveError) -> None:
        """It ends here, after a part of it went out."""


@dataclass(slots=True)
class _Sending:
    """What every way of sending needs."""

    job: SpeechJob
    delivery: Delivery
    body: ResponseBody
    encoding: Encoding


@dataclass(slots=True)
class RawWriter(_Sending):
    """Chunked bytes in the response format."""

    async def audio(self, pcm: bytes) -> None:
        piece = await self.encoding.feed(pcm)
        if piece.data:
            await self._write(piece)

    async def end(self) -> None:
        await self._write(await self.encoding.finish())

    async def done(self) -> None:
        await self.body.finish()

    async def fail(self, error: VoxserveError) -> None:
        self.body.cut()

    async def _write(self, piece: Piece) -> None:
        self.delivery.first_audio()
        if not self.body.begun:
            await self.body.begin(self.job.headers(self.delivery))
        await self.body.write(piece.data)
        self.delivery.wrote(piece.samples)


@dataclass(slots=True)
class SseWriter(_Sending):
    """Server-sent events with base64 audio."""

    seq: int = 0

    async def audio(self, pcm: bytes) -> None:
        await self._delta(await self.encoding.feed(pcm))

    async def end(self) -> None:
        if self.delivery.pcm_bytes:
            await self._delta(await self.encoding.finish())

    async def done(self) -> None:
        outcome = self.delivery.outcome
        await self._event(
            "speech.audio.done",
            {
                "usage": outcome.usage(),
                "finish_reason": outcome.finish_reason,
                "audio_ms": outcome.audio_ms,
            },
        )
        await self.body.finish()

    async def fail(self, error: VoxserveError) -> None:
        content = error_body(error, self.job.request_id)
        await self._event("error", {**content, "partial_audio": True})
        await self.body.finish()

    async def _delta(self, piece: Piece) -> None:
        if not piece.data:
            return
        self.delivery.first_audio()
        audio = base64.b64encode(piece.data).decode()
        start_ms = round(self.delivery.sent_s * 1000)
        content = {"audio": audio, "seq": self.seq, "audio_start_ms": start_ms}
        await self._event("speech.audio.delta", content)
        self.delivery.wrote(piece.samples)
        self.seq += 1

    async def _event(self, name: str, content: dict[str, Any]) -> None:
        if not self.body.begun:
            await self.body.begin(self.job.headers(self.delivery))
        data = json.dumps({"type": name, **content}, separators=(",", ":"))
        await self.body.write(f"event: {name}\ndata: {data}\n\n".encode())


@dataclass(slots=True)
class WholeWriter(_Sending):
    """One body with its length, exact container sizes and usage in the headers."""

    data: bytes = b""

    async def audio(self, pcm: bytes) -> None:
        self.delivery.first_audio()
        await self.encoding.feed(pcm)

    async def end(self) -> None:
        piece = await self.encoding.finish()
        self.data = piece.data
        self.delivery.wrote(piece.samples)

    async def done(self) -> None:
        outcome = self.delivery.outcome
        headers = {
            **self.job.headers(self.delivery),
            "Content-Length": str(len(self.data)),
            "X-Finish-Reason": str(outcome.finish_reason),
            "X-Usage-Input-Tokens": str(outcome.input_tokens),
            "X-Usage-Output-Tokens": str(outcome.output_tokens),
            "X-Audio-Duration-Ms": str(outcome.audio_ms),
        }
        await self.body.begin(headers)
        await self.body.write(self.data)
        await self.body.finish()

    async def fail(self, error: VoxserveError) -> None:
        """Only once the body is on its way, which no engine error can break any more."""
        self.body.cut()


WRITERS: dict[str, type[RawWriter] | type[SseWriter] | type[WholeWriter]] = {
    "raw": RawWriter,
    "sse": SseWriter,
    "whole": WholeWriter,
}
