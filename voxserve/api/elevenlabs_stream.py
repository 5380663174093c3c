"""`WS /v1/text-to-speech/{voice}/stream-input` and `…/multi-stream-input`."""

import asyncio
import time

from fastapi import APIRouter, WebSocket

from voxserve.api import ws_limits as limits
from voxserve.api.cloning import with_clip
from voxserve.api.elevenlabs_fields import Query, read, session_fields
from voxserve.api.elevenlabs_session import ElevenSession
from voxserve.api.gate import access_record
from voxserve.api.headers import SLO_TTFA, header_ms
from voxserve.api.service import Service, service_of
from voxserve.api.speech_request import resolve
from voxserve.api.ws_life import living
from voxserve.api.ws_outbox import Outbox
from voxserve.api.ws_utterance import Settings
from voxserve.errors import InvalidRequestError, TimeoutExceededError, VoxserveError

router = APIRouter()


@router.websocket("/v1/text-to-speech/{voice}/stream-input")
async def stream_input(websocket: WebSocket, voice: str) -> None:
    """One context; empty text ends it and the connection."""
    await _serve(websocket, voice, multi=False)


@router.websocket("/v1/text-to-speech/{voice}/multi-stream-input")
async def multi_stream_input(websocket: WebSocket, voice: str) -> None:
    """Contexts that the client names, opens and closes."""
    await _serve(websocket, voice, multi=True)


async def _serve(websocket: WebSocket, voice: str, *, multi: bool) -> None:
    """What is wrong with the address is refused at the handshake. Raises VoxserveError for it."""
    service = service_of(websocket)
    record = access_record(websocket.scope)
    query: Query = read(Query, dict(websocket.query_params), strict=False)
    settings = await _settings(websocket, service, voice, query)
    record.format = settings.plan.output.format.name
    await websocket.accept()
    slow_s = min(limits.SLOW_READER_S, service.config.api.slow_reader_s)
    outbox = Outbox(websocket, slow_s, service.metrics.send_buffer)
    session = ElevenSession(
        service, outbox, settings, record.request_id, multi=multi, auto_mode=query.auto_mode
    )
    async with living(session, service, outbox, record):
        await _receive(websocket, session, outbox, query.inactivity_timeout)


async def _settings(websocket: WebSocket, service: Service, voice: str, query: Query) -> Settings:
    fields, host = session_fields(voice, query), service.host()
    plan = resolve(
        fields,
        host,
        service.config,
        format_="mp3",
        silence=True,
        uploaded=service.uploaded(),
    )
    plan = await with_clip(plan, fields, service, host)
    ttfa_ms = header_ms(websocket, SLO_TTFA)
    ttfa_s = service.config.api.ttfa_target_s if ttfa_ms is None else ttfa_ms / 1000
    return Settings(fields, plan, ttfa_s)


async def _receive(
    websocket: WebSocket, session: ElevenSession, outbox: Outbox, idle_s: float
) -> None:
    """Until the connection is gone, whoever ended it."""
    while True:
        wait_s = max(0.0, _deadline(session, idle_s) - time.monotonic())
        try:
            async with asyncio.timeout(None if outbox.closing else wait_s):
                message = await websocket.receive()
        except TimeoutError:
            _on_deadline(session, idle_s)
            continue
        if message["type"] == "websocket.disconnect":
            return
        if outbox.closing:
            continue
        text = message.get("text")
        if text is None:
            error = InvalidRequestError("binary messages are not taken", code="binary_message")
            session.tell_error(error, None, limits.UNSUPPORTED_DATA)
        elif len(text) > limits.MAX_TEXT_BYTES or len(text.encode()) > limits.MAX_TEXT_BYTES:
            error = InvalidRequestError(
                f"message has more than {limits.MAX_TEXT_BYTES} bytes", code="message_too_big"
            )
            session.tell_error(error, None, limits.TOO_BIG)
        else:
            session.take(text)


def _deadline(session: ElevenSession, idle_s: float) -> float:
    """When something happens without the client."""
    if not session.contexts.utterances():
        return session.last_active + idle_s
    flush_at = session.contexts.next_flush()
    return time.monotonic() + limits.LONGEST_WAIT_S if flush_at is None else flush_at


def _on_deadline(session: ElevenSession, idle_s: float) -> None:
    now = time.monotonic()
    if session.contexts.utterances():
        try:
            session.flush_due(now)
        except VoxserveError as error:
            session.tell_error(error, None, None)
    elif now >= session.last_active + idle_s:
        idle = TimeoutExceededError("the session was idle", code="idle_timeout")
        session.tell_error(idle, None, limits.POLICY)
