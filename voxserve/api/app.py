"""The HTTP application: its routes, its middleware, and the life of the engine behind it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, WebSocket
from starlette.middleware.cors import CORSMiddleware

import voxserve
from voxserve.api import (
    elevenlabs,
    elevenlabs_stream,
    errors,
    health,
    models,
    openapi,
    reference,
    speech,
    stream,
    voice_routes,
)
from voxserve.api.gate import Gate
from voxserve.api.headers import REQUEST_TIMEOUT, SLO_TTFA
from voxserve.api.pauses import GcPauses, watch_lag
from voxserve.api.playground import page_routes
from voxserve.api.service import Service
from voxserve.config import Config
from voxserve.errors import CheckpointError, NotFoundError

CORS: dict[str, Any] = {
    "allow_methods": ("GET", "POST", "DELETE"),
    "allow_headers": (
        *("authorization", "content-type", "traceparent", "xi-api-key"),
        *("x-request-id", REQUEST_TIMEOUT, SLO_TTFA),
    ),
    "expose_headers": (
        *("x-request-id", "x-sample-rate", "x-channels", "x-bit-depth", "x-seed", "x-voice"),
        *("x-ignored-fields", "x-finish-reason", "x-usage-input-tokens", "x-usage-output-tokens"),
        *("x-audio-duration-ms", "server-timing"),
        *("retry-after", "retry-after-ms", "x-should-retry"),
    ),
}
"""What pages of `cors_origins` may do; credentials that a browser sends by itself are no part."""

_log = logging.getLogger("voxserve.api")


def create_app(config: Config) -> FastAPI:
    """The application. Its `state.service` is the Service; `state.boot` the task that starts it.

    The engine starts with the lifespan, beside the routes, which answer 503 meanwhile; it stops
    with it. The boot task ends with CheckpointError when there is no such model.
    """
    service = Service(config)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        pauses = GcPauses(service.metrics.gc_pause)
        pauses.install()
        lag = asyncio.create_task(watch_lag(service.metrics.loop_lag, service.metrics.tasks))
        app.state.boot = asyncio.create_task(_boot(service))
        try:
            yield
        finally:
            pauses.remove()
            app.state.boot.cancel()
            lag.cancel()
            await asyncio.gather(app.state.boot, lag, return_exceptions=True)
            await service.client.close()
            await asyncio.to_thread(service.tracing.close)

    app = FastAPI(
        title="voxserve",
        version=voxserve.__version__,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load their scripts from another host
        redoc_url=None,
    )
    app.state.service = service
    app.add_middleware(Gate, service=service)
    if config.api.cors_origins:
        app.add_middleware(CORSMiddleware, allow_origins=config.api.cors_origins, **CORS)
    errors.install(app)
    # Routes are tried in this order, so the busiest come first.
    parts = (speech, stream, elevenlabs, elevenlabs_stream, voice_routes, models, health)
    for part in parts:
        app.include_router(part.router)
    openapi.install(app)
    app.include_router(reference.router)
    if config.api.playground:
        app.include_router(page_routes())
    app.add_api_websocket_route("/{path:path}", _no_such_socket)
    return app


async def _no_such_socket(websocket: WebSocket) -> None:
    """Without it, a handshake for a path that is none would get 403, and no reason."""
    raise NotFoundError(f"Not Found: WebSocket {websocket.url.path}")


async def _boot(service: Service) -> None:
    try:
        await service.boot()
    except CheckpointError as error:
        _log.error("cannot load the model: %s", error.message)
        raise
