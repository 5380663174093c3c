"""`/v1/audio/voices`: list, upload, look up and delete voices."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from voxserve.api.body import read_fields
from voxserve.api.clips import content_key, with_text
from voxserve.api.schemas import VoiceUpload, parse
from voxserve.api.service import known_host, service_of
from voxserve.api.units import check_short_text
from voxserve.api.voice_store import check_name, exists, unknown
from voxserve.api.voices import is_built_in, of_upload, public_voice, public_voices
from voxserve.errors import ForbiddenError, InvalidRequestError
from voxserve.requests import SpeechRequest

router = APIRouter()

VOICES = "/v1/audio/voices"


@router.get(VOICES)
async def list_voices(request: Request) -> JSONResponse:
    service = service_of(request)
    return JSONResponse(public_voices(known_host(service).info, service.uploaded()))


@router.post(VOICES)
async def upload_voice(request: Request) -> JSONResponse:
    """Keep a recording under a name. It is checked as `ref_audio` of a request is."""
    service = service_of(request)
    host, api = service.host(), service.config.api
    if not host.info.cloning:
        raise InvalidRequestError(
            f"the model {host.info.name} clones no voices", code="unsupported_parameter"
        )
    data, from_text = await read_fields(request, api)
    fields, _ = parse(VoiceUpload, data, strict_fields=api.strict_fields, from_text=from_text)
    check_name(fields.name)
    if is_built_in(fields.name, host.info, api.voice_alias):
        raise exists(fields.name)
    try:
        audio = await service.clips.source.read(fields.audio)
        key = await asyncio.to_thread(content_key, audio)
        clip = await service.clips.decoded(key, lambda: audio, host.spec)
        said = fields.ref_text or None
        spoken = SpeechRequest("", clip=with_text(clip, said), speaker_only=said is None)
        check_short_text(host, spoken, service.config.engine.context)
    except InvalidRequestError as error:
        error.param = "audio" if error.param == "ref_audio" else error.param
        raise
    about = {name: getattr(fields, name) for name in ("ref_text", "description", "consent")}
    async with service.voices_lock:
        voice = await asyncio.to_thread(service.voices.add, fields.name, audio, about)
    return JSONResponse(of_upload(voice), status_code=201)


@router.get(VOICES + "/{name:path}")
async def get_voice(request: Request, name: str) -> JSONResponse:
    service = service_of(request)
    voice = public_voice(name, known_host(service).info, service.uploaded())
    if voice is None:
        check_name(name)
        raise unknown(name)
    return JSONResponse(voice)


@router.delete(VOICES + "/{name:path}")
async def delete_voice(request: Request, name: str) -> Response:
    """Forget an uploaded voice and its recording. Requests that run keep speaking with it."""
    service = service_of(request)
    if is_built_in(name, known_host(service).info, service.config.api.voice_alias):
        raise ForbiddenError(
            f"voice {name[:80]!r} is built in and cannot be deleted", code="voice_built_in"
        )
    async with service.voices_lock:
        await asyncio.to_thread(service.voices.remove, name)
    return JSONResponse({"id": name, "object": "voice.deleted", "deleted": True})
