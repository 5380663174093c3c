"""One utterance of a WebSocket session: from its first text to its last frame, or its end."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from voxserve import wire
from voxserve.api.delivery import Delivery
from voxserve.api.encoding import Encoding
from voxserve.api.engine_stream import Stream
from voxserve.api.joined_stream import JoinedStream, Pace, Part
from voxserve.api.schemas import SessionFields
from voxserve.api.service import Service, known_host
from voxserve.api.speech_request import SpeechPlan, unspeakable
from voxserve.api.ws_events import NO_USAGE, Events, Place
from voxserve.api.ws_text import UtteranceText
from voxserve.audio.output import Piece
from voxserve.errors import GenerationError, TimeoutExceededError, VoxserveError
from voxserve.requests import Prompt

CANCEL_ANSWER_S = 0.06
"""The engine's word on how much it made is waited for no longer than this."""

WINDOW_S = 5.0
"""Audio made beyond what the socket took; eight contexts then stay within 2 MiB."""

UNFINISHED_FLUSH_S = 5.0
"""Text that does not end a sentence waits this long for more."""

Reason = Literal["client_cancel", "timeout"]

_log = logging.getLogger("voxserve.api")


@dataclass(frozen=True, slots=True)
class Settings:
    """What session.config asked for. ttfa_s: the target for the first audio."""

    fields: SessionFields
    plan: SpeechPlan
    ttfa_s: float


class Utterance:
    """generated: no more audio of it will be made. queued: nothing of it will be queued any more.

    on_over is called once, when all of it has been sent, or it was cancelled or failed; with the
    error in the last case. `before` is the utterance that the same context speaks first.
    """

    def __init__(
        self,
        service: Service,
        settings: Settings,
        plan: SpeechPlan,
        text: UtteranceText,
        events: Events,
        place: Place,
        before: "Utterance | None",
        on_over: Callable[["Utterance", VoxserveError | None], None],
    ) -> None:
        self.place = place
        self.text = text
        self.events = events
        self.generated = asyncio.Event()
        self.queued = asyncio.Event()
        self.over = False
        self._heard_at = time.monotonic()
        self._service = service
        self._settings = settings
        self._plan = plan
        self._before = before
        self._on_over = on_over
        self._changed = asyncio.Event()
        self._stream: JoinedStream | None = None
        self._encoding: Encoding | None = None
        self._delivery: Delivery | None = None
        self._samples = 0  # queued
        self._samples_before = 0  # of them, in sentences before this one
        self._cancelled: Reason | None = None
        self._cancelled_at = 0.0
        self._limit: asyncio.Timeout | None = None
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def append(self, piece: str) -> None:
        """More text; a long one by and by, for as long as the utterance lives. Raises
        InvalidRequestError."""
        self._heard_at = time.monotonic()
        for _ in self.text.append(piece):
            self._text_changed()
            await asyncio.sleep(0)
            if self.over or self._cancelled:
                return
        self._text_changed()

    async def end(self) -> None:
        """The text is complete. Raises InvalidRequestError."""
        await self.text.end()
        self._text_changed()

    def release(self) -> bool:
        """Speak the text that is held although its sentence may go on; False if there is none, or
        it can only be spoken by ending the utterance. Raises InvalidRequestError."""
        released = self.text.release()
        if released:
            self._text_changed()
        return released

    def flush_at(self) -> float | None:
        """When its text is to be flushed unasked: none came and nothing is being made."""
        if self.text.ended or (self._before is not None and not self._before.generated.is_set()):
            return None
        sentence_s = self._settings.fields.max_buffer_delay_ms / 1000
        soon = self.text.ends_sentence and (self.text.held or not self.text.by_sentence)
        return self._heard_at + (sentence_s if soon else UNFINISHED_FLUSH_S)

    def cancel(self, reason: Reason) -> None:
        """No byte of it is queued after this; `audio.cancelled` follows within 60 ms."""
        if self._cancelled is not None or self.over:
            return
        self._cancelled = reason
        self._cancelled_at = time.monotonic()
        self.events.purge()
        self.generated.set()
        self._changed.set()
        if self._stream is not None:
            self._stream.cancel()
        follows = self._before is not None and self._before._cancelled is not None
        if self._task.done() or (self._stream is None and not follows):
            self._say_cancelled(None)
        elif self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + CANCEL_ANSWER_S)

    def played(self, seconds: float) -> None:
        """The client's own word on its playback."""
        if self._stream is not None and self._delivery is not None:
            self._delivery.outcome.played_ms = round(seconds * 1000)
            self._stream.played(seconds)

    def log_fields(self) -> dict[str, object]:
        """For the log, once it is over."""
        spoken = {} if self._delivery is None else self._delivery.log_fields()
        return {"request_id": self.place.request_id, "cancelled": self._cancelled, **spoken}

    async def abandon(self) -> None:
        """The connection is gone: stop the work, say nothing."""
        if self._stream is not None:
            self._stream.cancel()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._delivery is not None and self._delivery.outcome.outcome == "running":
            self._delivery.cancelled("client_closed")

    def _text_changed(self) -> None:
        self._changed.set()
        if self._stream is not None and self._cancelled is None:
            self._stream.feed()

    async def _run(self) -> None:
        try:
            if self._before is not None:
                await self._before.generated.wait()
            queue = self.text.queue
            while not (queue.startable or self.text.ended or self._cancelled):
                self._changed.clear()
                await self._changed.wait()
            if self._cancelled:
                if self._before is not None:
                    await self._before.queued.wait()
                self._say_cancelled(0.0)
                return
            if queue.startable:
                with self._service.work():
                    await self._speak()
            else:
                await self._stay_silent()
        except VoxserveError as error:
            if self._cancelled:
                self._say_cancelled(None)
            else:
                self._fail(error)
        finally:
            if self._stream is not None:
                self._stream.cancel()
            self._before = None
            self.generated.set()
            self.queued.set()

    async def _stay_silent(self) -> None:
        """Nothing but white space is no utterance; signs without a sound are one of 0 s."""
        spoken = 1 if self.text.chars else 0
        if spoken and not self._plan.silence_if_unspeakable:
            raise unspeakable()
        await self._turn()
        if spoken:
            self.events.done("stop", 0)
        self.events.session_done(spoken, 0, NO_USAGE, self._finish)

    async def _speak(self) -> None:
        fields, api, plan = self._settings.fields, self._service.config.api, self._plan
        place, ttfa_s = self.place, self._settings.ttfa_s
        delivery = self._delivery = Delivery(
            self._service, place.request_id, place.key_id, plan.output, ttfa_s
        )
        delivery.outcome.seed = plan.request.seed
        delivery.outcome.voice = plan.request.voice
        pace = Pace.of(
            known_host(self._service).spec,
            plan.output.speed,
            ttfa_s=self._settings.ttfa_s if fields.stream_audio else None,
            max_ahead_s=fields.max_ahead_ms / 1000 if fields.stream_audio else None,
        )
        stream = self._stream = JoinedStream(
            self.text.queue,
            self._submit,
            pace,
            seed=plan.request.seed,
            max_frames=plan.request.max_frames,
        )
        stream.start()
        queue_until = asyncio.get_running_loop().time() + api.queue_timeout_s
        try:
            async with asyncio.timeout_at(queue_until) as self._limit:
                await self._pump(stream, delivery)
        except TimeoutError as error:
            if delivery.queue_s is None and not self._cancelled:
                raise TimeoutExceededError(
                    f"the utterance waited longer than {api.queue_timeout_s:g} s",
                    code="queue_timeout",
                ) from error
            self._cancelled = self._cancelled or "timeout"
            self.events.purge()
        finally:
            if self._encoding is not None:
                self._encoding.close()
        if self._cancelled:
            self._say_cancelled(None)

    def _submit(
        self, index: int, prompt: Prompt, ttfa_s: float | None, max_ahead_s: float | None
    ) -> Stream:
        return self._service.client.submit(
            prompt,
            ttfa_s=ttfa_s,
            speed=self._plan.output.speed,
            max_ahead_s=max_ahead_s,
            window_s=WINDOW_S,
            chunk_frames=None if index else self._plan.chunk_frames,
        )

    async def _pump(self, stream: JoinedStream, delivery: Delivery) -> None:
        """Returns at the end, or once a cancelled stream has been answered."""
        async for part, message in stream:
            match message:
                case wire.Cancelled():
                    self._say_cancelled(part.start_s + message.generated_s)
                case _ if self._cancelled:
                    continue
                case wire.Started():
                    self._on_started(part, message, delivery)
                case wire.PcmChunk():
                    self._heard_at = time.monotonic()
                    delivery.made(message.pcm)
                    ends = self.text.by_sentence or stream.is_last(part)
                    await self._encode(message.pcm, message.last and ends)
                    if not self._settings.fields.stream_audio:
                        delivery.first_audio()
                        stream.taken(delivery.made_s)
                case wire.Finished(reason=reason):
                    if stream.is_last(part):
                        self.generated.set()
                    if self.text.by_sentence:
                        await self._end_sentence(reason)
        self.generated.set()
        if self._cancelled:
            return
        if not delivery.pcm_bytes:
            raise GenerationError("the model made no audio", code="no_audio")
        if not self.text.by_sentence:
            await self._end_sentence(stream.reason)
        await self._say_done(stream)

    def _on_started(self, part: Part, started: wire.Started, delivery: Delivery) -> None:
        if delivery.queue_s is None:
            delivery.started(started)
        assert self._limit is not None
        limit_s = self._service.config.api.generation_timeout_s
        self._limit.reschedule(asyncio.get_running_loop().time() + limit_s)
        if part.index == 0 or self.text.by_sentence:
            self.events.sentence(part.index, part.unit.text.strip())
            self._samples_before = self._samples
            whole = not self._settings.fields.stream_audio
            self._encoding = self._service.encoders.open(self._plan.output, whole=whole)
            self._encoding.prepare()

    async def _encode(self, pcm: bytes, last: bool) -> None:
        assert self._encoding is not None
        piece = await self._encoding.feed(pcm)
        if last:
            piece += await self._encoding.finish()
        await self._send(piece, last)

    async def _end_sentence(self, reason: str) -> None:
        assert self._encoding is not None and self._delivery is not None
        await self._send(await self._encoding.finish(), True)
        await self._turn()
        if not self._cancelled:
            samples = self._samples - self._samples_before
            self.events.done(reason, round(self._delivery.seconds(samples) * 1000))

    async def _send(self, piece: Piece, last: bool) -> None:
        assert self._delivery is not None
        if not piece.data:
            return
        self._delivery.first_audio()
        await self._turn()
        if not self._cancelled:
            self._samples += piece.samples
            self.events.audio(piece, last, self._was_sent)

    async def _turn(self) -> None:
        """Until the utterance before is out, and the client reads."""
        if self._before is not None:
            await self._before.queued.wait()
        await self.events.room()

    def _was_sent(self, samples: int) -> None:
        assert self._delivery is not None and self._stream is not None
        self._delivery.wrote(samples, excused=not self.text.ended)
        self._stream.taken(self._delivery.sent_s)

    async def _say_done(self, stream: JoinedStream) -> None:
        await self._turn()
        if self._cancelled:
            return
        delivery, tokens = self._delivery, self.text.queue.input_tokens
        assert delivery is not None

        def complete() -> None:
            delivery.complete(stream.reason, tokens, stream.frames)
            self._finish()

        outcome = delivery.outcome
        outcome.input_tokens, outcome.output_tokens = tokens, stream.frames
        audio_ms = round(delivery.seconds(self._samples) * 1000)
        sentences = stream.parts if self.text.by_sentence else 1
        self.events.session_done(sentences, audio_ms, outcome.usage(), complete)

    def _say_cancelled(self, generated_s: float | None) -> None:
        if self.over:
            return
        delivery, reason = self._delivery, self._cancelled or "timeout"
        made_s = sent_s = 0.0
        if delivery is not None:
            made_s = delivery.made_s if generated_s is None else generated_s
            sent_s = delivery.seconds(self.events.sent_samples)
            if reason == "timeout":
                delivery.failed(TimeoutExceededError("the utterance took too long"))
            else:
                delivery.cancelled(reason)
        cancelled_at = self._cancelled_at or time.monotonic()
        self.events.cancelled(
            reason,
            round(made_s * 1000),
            round(sent_s * 1000),
            lambda: self._service.metrics.ws_cancel.observe(time.monotonic() - cancelled_at),
        )
        self._finish()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Should it have crashed, its client must not wait for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an utterance crashed", exc_info=error)
            if not self.over:
                self._fail(VoxserveError("internal error"))

    def _fail(self, error: VoxserveError) -> None:
        if self._delivery is not None:
            self._delivery.failed(error)
        self._finish(error)

    def _finish(self, error: VoxserveError | None = None) -> None:
        if not self.over:
            self.over = True
            self._on_over(self, error)
