"""`POST /v1/audio/speech`, and how a finished request went."""

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from voxserve.api.body import read_fields
from voxserve.api.cloning import with_clip
from voxserve.api.gate import access_record
from voxserve.api.headers import REQUEST_TIMEOUT, SLO_TTFA, header_ms
from voxserve.api.schemas import SpeechFields, parse
from voxserve.api.service import service_of
from voxserve.api.speech_job import SpeechJob, Style
from voxserve.api.speech_request import SpeechPlan, resolve
from voxserve.api.speech_response import SpeechResponse
from voxserve.api.units import READ_AT_ONCE_CHARS, WholeUnit, units_or_silence
from voxserve.audio.formats import DEFAULT_FORMAT
from voxserve.config import ApiConfig
from voxserve.errors import InvalidRequestError, NotFoundError
from voxserve.plugin import HostLogic

router = APIRouter()


@router.post("/v1/audio/speech", response_class=Response)
async def create_speech(request: Request) -> Response:
    """Speech as it is made, unless `stream` is false."""
    service = service_of(request)
    service.host()  # A server that is not ready does not read the body.
    config = service.config.api
    data, from_text = await read_fields(request, config)
    fields, ignored = parse(
        SpeechFields, data, strict_fields=config.strict_fields, from_text=from_text
    )
    return await answer(request, fields, ignored)


async def answer(request: Request, fields: SpeechFields, ignored: Sequence[str]) -> Response:
    """The response to validated fields. ignored: names of fields that nobody knows.

    Raises VoxserveError for what the model or this server cannot honour.
    """
    service = service_of(request)
    host, config = service.host(), service.config
    record = access_record(request.scope)
    for name in ("user", "metadata"):
        if (value := getattr(fields, name)) is not None:
            record.fields[name] = value
    plan = resolve(
        fields,
        host,
        config,
        format_=DEFAULT_FORMAT,
        silence=False,
        uploaded=service.uploaded(),
    )
    record.format = plan.output.format.name
    plan = plan.with_text(fields.input or "", config.api.max_input_chars)
    plan = await with_clip(plan, fields, service.clips, service.voices, host)
    style = _style(fields, request.headers.get("accept", ""), config.api)
    timeout_ms = header_ms(request, REQUEST_TIMEOUT)
    ttfa_ms = header_ms(request, SLO_TTFA)
    target_s = config.api.ttfa_target_s if ttfa_ms is None else ttfa_ms / 1000
    units = await _units(host, plan, config.engine.context)
    limit_s = config.api.generation_timeout_s * max(1, len(units))
    job = SpeechJob(
        request_id=record.request_id,
        plan=plan,
        style=style,
        ignored=tuple(ignored),
        ttfa_s=None if style == "whole" else target_s,
        timeout_s=limit_s if timeout_ms is None else min(limit_s, timeout_ms / 1000),
    )
    return SpeechResponse(service, job, units)


@router.get("/v1/audio/speech/{request_id}")
async def get_outcome(request: Request, request_id: str) -> JSONResponse:
    """How a request of the last minutes ended, or that it is still running."""
    key_id = access_record(request.scope).key_id
    outcome = service_of(request).outcomes.get(request_id, key_id)
    if outcome is None:
        raise NotFoundError(
            f"no request {request_id[:128]!r} in the last minutes",
            param="request_id",
            code="request_not_found",
        )
    return JSONResponse(outcome.public(), headers={"cache-control": "no-store"})


async def _units(host: HostLogic, plan: SpeechPlan, context: int) -> list[WholeUnit]:
    if len(plan.request.text) <= READ_AT_ONCE_CHARS:
        return units_or_silence(host, plan, context)
    return await asyncio.to_thread(units_or_silence, host, plan, context)


def _style(fields: SpeechFields, accept: str, config: ApiConfig) -> Style:
    wants_events = fields.stream_format == "sse" or (
        fields.stream_format is None and "text/event-stream" in accept.lower()
    )
    if fields.stream is False and fields.stream_format == "sse":
        raise InvalidRequestError(
            "stream is false, but stream_format is sse", param="stream_format"
        )
    if fields.stream is False:
        return "whole"
    if wants_events or (fields.stream and config.stream_true_means_sse):
        return "sse"
    return "raw"
