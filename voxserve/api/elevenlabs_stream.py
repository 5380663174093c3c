"""`WS /v1/text-to-speech/{voice}/stream-input` and `…/multi-stream-input`."""

from fastapi import APIRouter, WebSocket

from voxserve.api import ws_receive
from voxserve.api.cloning import with_clip
from voxserve.api.elevenlabs_fields import Query, named_as_theirs, read, session_fields
from voxserve.api.elevenlabs_session import ElevenSession
from voxserve.api.gate import access_record
from voxserve.api.headers import SLO_TTFA, header_ms
from voxserve.api.service import Service, service_of
from voxserve.api.speech_request import resolve
from voxserve.api.units import check_short_text
from voxserve.api.ws_life import Life
from voxserve.api.ws_outbox import Outbox
from voxserve.api.ws_utterance import Settings
from voxserve.audio.formats import DEFAULT_FORMAT

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
    with named_as_theirs():
        settings = await _settings(websocket, service, voice, query)
    record.format = settings.plan.output.format.name
    await websocket.accept()
    outbox = Outbox(websocket, service.config.api.slow_reader_s, service.metrics.send_buffer)
    life = Life(service, outbox, record)
    session = ElevenSession(life, settings, query, multi=multi)
    await ws_receive.serve(websocket, session, record)


async def _settings(websocket: WebSocket, service: Service, voice: str, query: Query) -> Settings:
    fields, host = session_fields(voice, query), service.host()
    plan = resolve(
        fields,
        host,
        service.config,
        format_=DEFAULT_FORMAT,
        silence=True,
        uploaded=service.uploaded(),
    )
    plan = await with_clip(plan, fields, service.clips, service.voices, host)
    check_short_text(host, plan.request, service.config.engine.context)
    ttfa_ms = header_ms(websocket, SLO_TTFA)
    ttfa_s = service.config.api.ttfa_target_s if ttfa_ms is None else ttfa_ms / 1000
    return Settings(fields, plan, ttfa_s)
