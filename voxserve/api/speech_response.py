"""Runs one speech request and answers it. The status line waits for the first audio."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from voxserve import wire
from voxserve.api.delivery import Delivery
from voxserve.api.encoding import Encoding
from voxserve.api.engine_stream import Stream
from voxserve.api.errors import CLIENT_CLOSED
from voxserve.api.gate import access_record
from voxserve.api.joined_stream import JoinedStream, Pace
from voxserve.api.response_body import ResponseBody, SlowReaderError
from voxserve.api.service import Service, known_host
from voxserve.api.speech_job import SpeechJob
from voxserve.api.units import UnitQueue, WholeUnit
from voxserve.api.writers import WRITERS, Writer
from voxserve.errors import GenerationError, TimeoutExceededError, VoxserveError
from voxserve.requests import Prompt


class SpeechResponse(Response):
    """units: none when there is nothing to speak and silence was asked for."""

    def __init__(self, service: Service, job: SpeechJob, units: Sequence[WholeUnit]) -> None:
        super().__init__()
        self._service = service
        self._job = job
        self._queue = UnitQueue(units, closed=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises the VoxserveError of a request that failed before its first audio."""
        service, job = self._service, self._job
        record = access_record(scope)
        delivery = Delivery(service, job.request_id, record.key_id, job.plan.output, job.ttfa_s)
        delivery.outcome.seed = job.plan.request.seed
        delivery.outcome.voice = job.plan.request.voice
        body = ResponseBody(scope, send, service.config.api.slow_reader_s)
        # A stream of no audio has a known end as well.
        whole = job.style == "whole" or self._queue.drained
        encoding = service.encoders.open(job.plan.output, whole=whole)
        writer = WRITERS[job.style](job, delivery, body, encoding)
        with service.work(), contextlib.closing(encoding), contextlib.closing(body):
            try:
                await self._speak(delivery, encoding, writer, receive)
            except VoxserveError as error:
                delivery.failed(error)
                if not body.begun:
                    raise
                with contextlib.suppress(SlowReaderError):
                    await writer.fail(error)
                await _client_gone(receive)
            except SlowReaderError:
                delivery.cancelled("slow_reader")
                service.metrics.slow_closed.add()
                await _client_gone(receive)
            finally:
                if delivery.outcome.outcome == "running":
                    crash = sys.exception()
                    if crash is None or isinstance(crash, asyncio.CancelledError):
                        delivery.cancelled("client_closed")
                        record.status = CLIENT_CLOSED
                    else:
                        delivery.failed(VoxserveError("internal error"))
                record.fields.update(delivery.log_fields())

    async def _speak(
        self, delivery: Delivery, encoding: Encoding, writer: Writer, receive: Receive
    ) -> None:
        if self._queue.drained:
            await writer.end()
            delivery.complete("stop", 0, 0)
            await writer.done()
            return
        plan = self._job.plan
        stream = JoinedStream(
            self._queue,
            self._submit,
            Pace.of(known_host(self._service).spec, plan.output.speed, self._job.ttfa_s, None),
            seed=plan.request.seed,
            max_frames=plan.request.max_frames,
        )
        stream.start()
        watcher = asyncio.create_task(_client_gone(receive))
        watcher.add_done_callback(lambda task: stream.cancel())
        try:
            await self._pump(stream, delivery, encoding, writer)
        finally:
            stream.cancel()
            watcher.cancel()

    def _submit(
        self, index: int, prompt: Prompt, ttfa_s: float | None, max_ahead_s: float | None
    ) -> Stream:
        plan = self._job.plan
        return self._service.client.submit(
            prompt,
            ttfa_s=ttfa_s,
            speed=plan.output.speed,
            max_ahead_s=max_ahead_s,
            window_s=self._service.config.api.window_s,
            chunk_frames=None if index else plan.chunk_frames,
        )

    async def _pump(
        self, stream: JoinedStream, delivery: Delivery, encoding: Encoding, writer: Writer
    ) -> None:
        begin = asyncio.get_running_loop().time()
        timeout_s = self._job.timeout_s
        try:
            async with asyncio.timeout_at(begin + self._queue_timeout_s()) as limit:
                async for _, message in stream:
                    match message:
                        case wire.Started() if delivery.queue_s is None:
                            limit.reschedule(begin + timeout_s)
                            delivery.started(message)
                            encoding.prepare()
                        case wire.PcmChunk():
                            delivery.made(message.pcm)
                            await writer.audio(message.pcm)
                            stream.taken(delivery.taken_s)
                if stream.cancelled:
                    return
                if not delivery.pcm_bytes:
                    raise GenerationError("the model made no audio", code="no_audio")
                await writer.end()
                delivery.complete(stream.reason, self._queue.input_tokens, stream.frames)
                await writer.done()
        except TimeoutError as error:
            queued = delivery.queue_s is None and timeout_s > self._queue_timeout_s()
            code = "queue_timeout" if queued else "generation_timeout"
            waited_s = self._queue_timeout_s() if queued else timeout_s
            raise TimeoutExceededError(
                f"the request took longer than {waited_s:g} s", code=code
            ) from error

    def _queue_timeout_s(self) -> float:
        """Buffered requests may queue for as long as they may take."""
        if self._job.ttfa_s is None:
            return self._job.timeout_s
        return min(self._service.config.api.queue_timeout_s, self._job.timeout_s)


async def _client_gone(receive: Receive) -> None:
    """Return when the client's connection is closed, or the response complete."""
    while (await receive())["type"] != "http.disconnect":
        pass
