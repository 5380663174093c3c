"""Routes in the shape of ElevenLabs' API, so that clients made for it can be pointed here."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from voxserve.api.body import read_fields
from voxserve.api.elevenlabs_fields import (
    DEFAULT_OUTPUT,
    SpeechBody,
    named_as_theirs,
    read,
    speech_fields,
)
from voxserve.api.service import service_of
from voxserve.api.speech import answer
from voxserve.api.voices import public_voices
from voxserve.errors import UnavailableError

router = APIRouter()


@router.post("/v1/text-to-speech/{voice}", response_class=Response)
async def text_to_speech(request: Request, voice: str) -> Response:
    """One body of known length."""
    return await _speak(request, voice, stream=False)


@router.post("/v1/text-to-speech/{voice}/stream", response_class=Response)
async def text_to_speech_stream(request: Request, voice: str) -> Response:
    """Speech as it is made."""
    return await _speak(request, voice, stream=True)


@router.get("/v1/voices")
async def voices(request: Request) -> JSONResponse:
    service = service_of(request)
    host = service.loaded_host
    if host is None:
        raise UnavailableError("the model is still loading", code="starting", retry_after_s=5)
    listed = public_voices(host.info, service.uploaded())["data"]
    assert isinstance(listed, list)
    return JSONResponse(
        {
            "voices": [
                {
                    "voice_id": voice["id"],
                    "name": voice["name"],
                    "category": "cloned" if voice["uploaded"] else "premade",
                    "description": voice["description"] or None,
                    "labels": {},
                    "preview_url": None,
                    "settings": None,
                }
                for voice in listed
            ],
            "has_more": False,
            "total_count": len(listed),
        }
    )


async def _speak(request: Request, voice: str, *, stream: bool) -> Response:
    service = service_of(request)
    service.host()  # A server that is not ready does not read the body.
    data, _ = await read_fields(request, service.config.api)
    body = read(SpeechBody, data)
    output = request.query_params.get("output_format", DEFAULT_OUTPUT)
    with named_as_theirs():
        return await answer(request, speech_fields(voice, body, output, stream=stream), ())
