"""`WS /v1/audio/speech/stream`: text in, audio out."""

import time

from fastapi import APIRouter, WebSocket

from voxserve.api import ws_receive
from voxserve.api.gate import access_record
from voxserve.api.headers import SLO_TTFA, header_ms
from voxserve.api.service import service_of
from voxserve.api.ws_life import Life
from voxserve.api.ws_outbox import Outbox
from voxserve.api.ws_session import SpeechSession

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
    outbox = Outbox(websocket, config.slow_reader_s, service.metrics.send_buffer)
    ttfa_s = config.ttfa_target_s if ttfa_ms is None else ttfa_ms / 1000
    life = Life(service, outbox, record)
    session = SpeechSession(life, ttfa_s, time.monotonic() + config.ws_config_timeout_s)
    await ws_receive.serve(websocket, session, record)
