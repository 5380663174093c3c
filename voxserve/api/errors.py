"""The one shape in which every error leaves the server."""

import http
import math
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from voxserve.errors import (
    AuthenticationError,
    BodyTimeoutError,
    InvalidRequestError,
    MethodNotAllowedError,
    NotFoundError,
    VoxserveError,
)

CLIENT_CLOSED = 499
"""Status in the log and the metrics of a request whose client went away; never sent."""

_BY_STATUS: dict[int, type[VoxserveError]] = {404: NotFoundError, 405: MethodNotAllowedError}


def error_body(error: VoxserveError, request_id: str | None) -> dict[str, Any]:
    return {
        "error": {
            "message": _encodable(error.message),
            "type": error.type,
            "param": None if error.param is None else _encodable(error.param),
            "code": error.code,
            "request_id": request_id,
        }
    }


def _encodable(text: str) -> str:
    """Names that a client made up may hold half a surrogate pair, which no UTF-8 can say."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def error_headers(error: VoxserveError) -> dict[str, str]:
    """What tells SDKs whether and when to try again."""
    headers = {"cache-control": "no-store"}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
        headers["retry-after-ms"] = str(math.ceil(error.retry_after_s * 1000))
    if error.status == InvalidRequestError.status:
        headers["x-should-retry"] = "false"
    if error.status == BodyTimeoutError.status:
        headers["connection"] = "close"
    if error.status == AuthenticationError.status:
        headers["www-authenticate"] = "Bearer"
    return headers


def error_response(error: VoxserveError, request_id: str | None) -> JSONResponse:
    return JSONResponse(error_body(error, request_id), error.status, error_headers(error))


def install(app: FastAPI) -> None:
    """Answer every exception of the app's routes in that shape."""
    app.add_exception_handler(VoxserveError, _on_voxserve_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_client_gone)
    app.add_exception_handler(Exception, _on_crash)


def _request_id(request: Request) -> str | None:
    return getattr(request.state, "request_id", None)


async def _on_voxserve_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, VoxserveError)
    return error_response(error, _request_id(request))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own: no such route, no such method."""
    assert isinstance(error, HTTPException)
    kind = _BY_STATUS.get(error.status_code, InvalidRequestError)
    what = http.HTTPStatus(error.status_code).phrase
    response = error_response(
        kind(f"{what}: {request.method} {request.url.path}"), _request_id(request)
    )
    response.status_code = error.status_code
    response.headers.update(error.headers or {})
    return response


async def _on_client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)


async def _on_crash(request: Request, error: Exception) -> Response:
    return error_response(VoxserveError("internal error"), _request_id(request))
