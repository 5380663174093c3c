"""`WS /v1/audio/speech/stream`: text in, audio out."""

import asyncio
import time

from fastapi import APIRouter, WebSocket

from voxserve.api import ws_limits as limits
from voxserve.api.gate import access_record
from voxserve.api.headers import SLO_TTFA, header_ms
from voxserve.api.service import service_of
from voxserve.api.ws_life import living
from voxserve.api.ws_messages import event_id_of, parse_message
from voxserve.api.ws_outbox import Outbox
from voxserve.api.ws_session import SpeechSession
from voxserve.errors import InvalidRequestError, TimeoutExceededError, VoxserveError

router = APIRouter()

SUBPROTOCOL = "voxserve.speech.v1"


@router.websocket("/v1/audio/speech/stream")
async def speech_stream(websocket: WebSocket) -> None:
    """One session, from the handshake to its close."""
    service = service_of(websocket)
    config = service.config.api
    ttfa_ms = header_ms(websocket, SLO_TTFA)
    record = access_record(websocket.scope)
    offered = websocket.scope.get("subprotocols", [])
    await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    slow_s = min(limits.SLOW_READER_S, config.slow_reader_s)
    outbox = Outbox(websocket, slow_s, service.metrics.send_buffer)
    ttfa_s = config.ttfa_target_s if ttfa_ms is None else ttfa_ms / 1000
    session = SpeechSession(service, outbox, record.request_id, ttfa_s)
    async with living(session, service, outbox, record):
        await _receive(websocket, session, outbox, config.ws_config_timeout_s)


async def _receive(
    websocket: WebSocket, session: SpeechSession, outbox: Outbox, config_timeout_s: float
) -> None:
    """Until the connection is gone, whoever ended it."""
    config_by = time.monotonic() + config_timeout_s
    while True:
        wait_s = max(0.0, _deadline(session, config_by) - time.monotonic())
        try:
            async with asyncio.timeout(None if outbox.closing else wait_s):
                message = await websocket.receive()
        except TimeoutError:
            _on_deadline(session, config_by)
            continue
        if message["type"] == "websocket.disconnect":
            return
        if outbox.closing:
            continue
        if message.get("text") is None:
            error = InvalidRequestError("binary messages are not taken", code="binary_message")
            session.tell_error(error, fatal=limits.UNSUPPORTED_DATA)
        else:
            await _on_text(session, message["text"])


async def _on_text(session: SpeechSession, text: str) -> None:
    size = len(text) if text.isascii() else len(text.encode())
    if size > limits.MAX_TEXT_BYTES and '"session.config"' not in text:
        error = InvalidRequestError(
            f"message has {size} bytes, at most {limits.MAX_TEXT_BYTES}",
            code="message_too_big",
        )
        session.tell_error(error, fatal=limits.TOO_BIG)
        return
    try:
        message, event_id = parse_message(text)
    except InvalidRequestError as error:
        session.count_error(error, event_id_of(text))
        return
    try:
        await session.handle(message)
    except VoxserveError as error:
        session.count_error(error, event_id)


def _deadline(session: SpeechSession, config_by: float) -> float:
    """When something happens without the client."""
    if session.settings is None:
        return config_by
    flush_at = session.contexts.next_flush()
    if session.contexts.utterances():
        return flush_at if flush_at is not None else time.monotonic() + limits.LONGEST_WAIT_S
    return session.last_active + session.settings.fields.idle_timeout_s


def _on_deadline(session: SpeechSession, config_by: float) -> None:
    now = time.monotonic()
    if session.settings is None:
        if now >= config_by:
            late = TimeoutExceededError("no session.config came", code="config_timeout")
            session.tell_error(late, fatal=limits.POLICY)
    elif session.contexts.utterances():
        try:
            session.flush_due(now)
        except VoxserveError as error:
            session.tell_error(error)
    elif now >= session.last_active + session.settings.fields.idle_timeout_s:
        idle = TimeoutExceededError("the session was idle", code="idle_timeout")
        session.tell_error(idle, fatal=limits.POLICY)
