"""What every connection passes first: a request id, the API key, the access log, the counters."""

import contextlib
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voxserve.api.auth import NO_KEY
from voxserve.api.errors import CLIENT_CLOSED, error_response
from voxserve.api.hosts import HostCheck
from voxserve.api.logs import log_fields
from voxserve.api.service import Service
from voxserve.errors import ForbiddenError, RateLimitError, UnavailableError, VoxserveError

SESSION_RETRY_S = 5.0
"""When another session of a key may have ended."""

_log = logging.getLogger("voxserve.access")
_VALID_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_QUIET_PATHS = frozenset({"/live", "/ready", "/health", "/metrics"})


@dataclass(slots=True)
class AccessRecord:
    """What the access log says of one request; routes fill in what they know.

    status: the HTTP status sent, 499 when the client left, a close code for WebSockets.
    fields: further keys, such as ttfa_ms. Never the text.
    """

    request_id: str
    key_id: str = NO_KEY
    status: int = 0
    format: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def status_label(self) -> str:
        return "client_closed" if self.status == CLIENT_CLOSED else str(self.status)


def access_record(scope: Scope) -> AccessRecord:
    record = scope["state"]["access"]
    assert isinstance(record, AccessRecord)
    return record


class Gate:
    """The outermost middleware."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._sessions: Counter[str] = Counter()
        self._hosts = HostCheck(service.config.api)
        self._origins = frozenset(origin.encode() for origin in service.config.api.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers, method = dict(scope["headers"]), scope.get("method", "WEBSOCKET")
        record = AccessRecord(_request_id(headers.get(b"x-request-id", b"")))
        scope.setdefault("state", {}).update(request_id=record.request_id, access=record)
        begin = time.monotonic()
        # Stays if an exception that nobody foresaw ends the request.
        record.status = 500
        try:
            self._hosts.check(headers)
            record.key_id = self._service.keys.check(scope["path"], headers)
            if method not in _SAFE_METHODS:
                _check_origin(headers, self._origins)
            if method == "HEAD":
                # Routes know GET alone; uvicorn sends no body, as it goes by its own scope.
                scope = {**scope, "method": "GET"}
            with self._session(scope, record.key_id), self._service.tracing.parent(headers):
                await self._app(scope, receive, _observed(send, record))
        except VoxserveError as error:
            response = error_response(error, record.request_id)
            await response(scope, receive, _observed(send, record))
        finally:
            self._account(scope, method, record, time.monotonic() - begin)

    @contextlib.contextmanager
    def _session(self, scope: Scope, key_id: str) -> Iterator[None]:
        """Counts a WebSocket while it is there. Raises UnavailableError or RateLimitError for a
        handshake that could only be closed again."""
        if scope["type"] != "websocket":
            yield
            return
        self._service.host()
        if not self._service.ready:
            raise UnavailableError("the engine is not ready", code="starting", retry_after_s=5.0)
        most = self._service.config.api.max_sessions
        if self._sessions[key_id] >= most:
            raise RateLimitError(
                f"{most} WebSocket sessions are open, the most that api.max_sessions allows a key",
                retry_after_s=SESSION_RETRY_S,
            )
        self._sessions[key_id] += 1
        try:
            yield
        finally:
            self._sessions[key_id] -= 1
            if not self._sessions[key_id]:
                del self._sessions[key_id]

    def _account(self, scope: Scope, method: str, record: AccessRecord, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        self._service.metrics.requests.add(route, record.status_label, record.format)
        if scope["path"] in _QUIET_PATHS:
            return
        fields = {
            "request_id": record.request_id,
            "method": method,
            "path": scope["path"][:200],
            "status": record.status,
            "duration_ms": round(seconds * 1000, 1),
            "key": record.key_id,
            **record.fields,
        }
        log_fields(_log, "request", fields)


def _observed(send: Send, record: AccessRecord) -> Send:
    """Adds the request id to every response and takes down its status."""

    async def observing(message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            record.status = message["status"]
            MutableHeaders(scope=message)["x-request-id"] = record.request_id
        elif kind == "websocket.accept":
            record.status = 101
            MutableHeaders(scope=message)["x-request-id"] = record.request_id
        elif kind == "websocket.close":
            record.status = message.get("code", 1000)
        await send(message)

    return observing


def _check_origin(headers: Mapping[bytes, bytes], allowed: Set[bytes] = frozenset()) -> None:
    """Browsers let any page open a WebSocket or post a form anywhere, so one of another host is
    refused, unless its origin is `allowed`. Raises ForbiddenError."""
    origin = headers.get(b"origin")
    if origin is None or origin in allowed:
        return
    if origin.partition(b"://")[2] != headers.get(b"host"):
        raise ForbiddenError("pages of another origin may not connect", code="origin_not_allowed")


def _request_id(given: bytes) -> str:
    """The client's own id when it is a decent one, else a new one."""
    text = given.decode("latin-1")
    return text if _VALID_ID.fullmatch(text) else f"req-{secrets.token_hex(12)}"
