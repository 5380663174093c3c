"""Whether the process lives, whether it takes traffic, what it is, and its metrics."""

import time

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, PlainTextResponse, Response

import voxserve
from voxserve.api.service import Service, config_hash, service_of
from voxserve.errors import UnavailableError

router = APIRouter()

NOT_STORED = {"cache-control": "no-store"}


@router.get("/live")
async def live() -> JSONResponse:
    return JSONResponse({"status": "live"}, headers=NOT_STORED)


@router.get("/ready")
async def ready(request: Request) -> JSONResponse:
    _check_ready(service_of(request))
    return JSONResponse({"status": "ready"}, headers=NOT_STORED)


@router.get("/health")
async def health(request: Request) -> JSONResponse:
    """As /ready, with detail: 200 or 503, the same keys in both."""
    service = service_of(request)
    client, stats = service.client, service.client.stats
    progress = client.progress
    detail = {
        "status": "draining" if service.draining else client.phase,
        "model": service.config.served_name or service.config.model,
        "uptime_s": round(time.time() - service.started_at, 1),
        "slots": client.slots,
        "slots_free": stats.slots_free if stats else None,
        "lanes": stats.lane_busy if stats else None,
        "waiting": stats.waiting if stats else None,
        "running": service.running,
        "sessions": len(service.sessions),
        "engine_restarts": client.restarts,
        "warming": None
        if progress is None or client.phase == "ready"
        else {"what": progress.what, "done": progress.done, "total": progress.total},
    }
    return JSONResponse(detail, 200 if service.ready else 503, headers=NOT_STORED)


@router.get("/version")
async def version(request: Request) -> JSONResponse:
    config = service_of(request).config
    return JSONResponse(
        {
            "version": voxserve.__version__,
            "model": config.served_name or config.model,
            "config": config_hash(config),
            "deterministic": config.engine.deterministic,
        }
    )


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    text = generate_latest(service_of(request).metrics.registry)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _check_ready(service: Service) -> None:
    service.host()
    if not service.ready:
        code = "starting" if service.client.phase == "starting" else "engine_restarting"
        raise UnavailableError(f"the engine is {service.client.phase}", code=code, retry_after_s=5)
