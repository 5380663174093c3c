"""`GET /v1/models`: what can be asked for."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from voxserve.api.service import Service, known_host, service_of
from voxserve.api.speech_request import model_names
from voxserve.api.voices import public_voices
from voxserve.audio.formats import FORMATS
from voxserve.errors import NotFoundError

router = APIRouter()


@router.get("/v1/models")
async def list_models(request: Request) -> JSONResponse:
    return JSONResponse({"object": "list", "data": [_model(service_of(request))]})


@router.get("/v1/models/{model:path}")
async def get_model(request: Request, model: str) -> JSONResponse:
    service = service_of(request)
    if model not in model_names(service.config, known_host(service).info):
        raise NotFoundError(
            f"model {model[:100]!r} is not served here", param="model", code="model_not_found"
        )
    return JSONResponse(_model(service))


def _model(service: Service) -> dict[str, object]:
    host = known_host(service)
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
            "voices": public_voices(info, service.uploaded())["voices"],
            "default_voice": info.default_voice,
            "tasks": list(info.tasks),
            "cloning": info.cloning,
            "text_streaming": info.text_streaming,
            "max_input_chars": service.config.api.max_input_chars,
        },
        "licence": info.licence,
        "notice": info.notice,
    }
