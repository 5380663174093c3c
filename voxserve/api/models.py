"""`GET /v1/models` and `GET /v1/audio/voices`: what can be asked for."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from voxserve.api.service import Service, service_of
from voxserve.api.speech_request import max_input_chars, model_names
from voxserve.api.voices import public_voices
from voxserve.audio.formats import FORMATS
from voxserve.errors import NotFoundError, UnavailableError
from voxserve.plugin import HostLogic

router = APIRouter()


@router.get("/v1/models")
async def list_models(request: Request) -> JSONResponse:
    return JSONResponse({"object": "list", "data": [_model(service_of(request))]})


@router.get("/v1/models/{model:path}")
async def get_model(request: Request, model: str) -> JSONResponse:
    service = service_of(request)
    if model not in model_names(service.config, _host(service).info):
        raise NotFoundError(
            f"model {model[:100]!r} is not served here", param="model", code="model_not_found"
        )
    return JSONResponse(_model(service))


@router.get("/v1/audio/voices")
async def list_voices(request: Request) -> JSONResponse:
    return JSONResponse(public_voices(_host(service_of(request)).info))


def _host(service: Service) -> HostLogic:
    """Known before the engine is ready, and still while it drains."""
    if service.loaded_host is None:
        raise UnavailableError("the model is still loading", code="starting", retry_after_s=5)
    return service.loaded_host


def _model(service: Service) -> dict[str, object]:
    host = _host(service)
    info, spec = host.info, host.spec
    return {
        "id": model_names(service.config, info)[0],
        "object": "model",
        "created": int(service.started_at),
        "owned_by": "voxserve",
        "audio": {
            "sample_rate": spec.sample_rate_hz,
            "channels": 1,
            "formats": list(FORMATS),
            "languages": list(info.languages),
            "voices": [voice.name for voice in info.voices],
            "default_voice": info.default_voice,
            "tasks": list(info.tasks),
            "text_streaming": info.text_streaming,
            "max_input_chars": max_input_chars(service.config, info),
        },
        "licence": info.licence,
        "notice": info.notice,
    }
