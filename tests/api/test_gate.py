"""Keys and origins, for every route that the application has."""

import asyncio
import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import ValidationError
from starlette.routing import BaseRoute, Route, WebSocketRoute

from voxserve.api.app import create_app
from voxserve.api.auth import OPEN_PATHS
from voxserve.api.playground import PATHS
from voxserve.config import ApiConfig, Config

KEY = "a key of the test"
HERE = "here.localhost"
ORIGIN = "https://app.example.org"


def _app(**api: Any) -> FastAPI:
    """The application without its engine: the gate comes before that."""
    return create_app(Config(api=ApiConfig(**api)))


def _routes(routes: list[BaseRoute]) -> Iterator[BaseRoute]:
    for route in routes:
        below = getattr(route, "routes", None) or getattr(
            getattr(route, "original_router", None), "routes", None
        )
        if below:
            yield from _routes(list(below))
        else:
            yield route


APP = _app(api_keys=(KEY,), cors_origins=(ORIGIN,))
_APP_ALONE = _app()
ROUTES = list(_routes(APP.routes))
HTTP = sorted(
    {
        (method, route.path)
        for route in ROUTES
        if isinstance(route, Route)
        for method in route.methods or ()
    }
)
SOCKETS = sorted({route.path for route in ROUTES if isinstance(route, WebSocketRoute)})


def _ask(app: FastAPI, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HERE}") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(ask())


def _shake_hands(
    app: FastAPI, path: str, *headers: tuple[bytes, bytes], host: bytes = HERE.encode()
) -> int:
    """The status of a refused handshake."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", host), *headers],
        "subprotocols": [],
        "scheme": "ws",
        "extensions": {"websocket.http.response": {}},
    }
    asyncio.run(app(scope, receive, send))
    return int(sent[0]["status"])


def test_table_is_read_whole() -> None:
    paths = {path for _, path in HTTP}
    assert {"/v1/audio/speech", "/metrics", "/docs", "/openapi.json", "/live"} <= paths
    assert "/v1/audio/speech/stream" in SOCKETS


def test_open_routes_are_these() -> None:
    assert {"/live", "/ready"} | PATHS == OPEN_PATHS
    assert {path for _, path in HTTP} >= PATHS


@pytest.mark.parametrize(("method", "path"), HTTP)
def test_every_route_asks_for_the_key(method: str, path: str) -> None:
    without = _ask(APP, method, path, {})
    wrong = _ask(APP, method, path, {"authorization": f"Bearer {KEY[:-1]}"})
    if path in OPEN_PATHS:
        assert without.status_code != 401
        return
    assert without.status_code == wrong.status_code == 401
    if method != "HEAD":
        assert without.json()["error"]["code"] == "invalid_api_key"
    assert _ask(APP, method, path, {"authorization": f"Bearer {KEY}"}).status_code != 401


@pytest.mark.parametrize("path", ["/", "/nothing", "/live/", "/playground/other", "/v1"])
def test_unknown_paths_do_too(path: str) -> None:
    assert _ask(APP, "GET", path, {}).status_code == 401


@pytest.mark.parametrize("path", SOCKETS)
def test_every_websocket_asks_at_the_handshake(path: str) -> None:
    key = (b"authorization", f"Bearer {KEY}".encode())
    encoded = base64.urlsafe_b64encode(KEY.encode()).rstrip(b"=")
    protocols = (b"sec-websocket-protocol", b"voxserve.speech.v1, voxserve.key." + encoded)
    assert _shake_hands(APP, path) == 401
    assert _shake_hands(APP, path, (b"sec-websocket-protocol", b"voxserve.key.!!")) == 401
    # The right key gets further: there is no engine here.
    assert _shake_hands(APP, path, key) == 503
    assert _shake_hands(APP, path, protocols) == 503


@pytest.mark.parametrize("path", SOCKETS)
def test_pages_of_another_origin(path: str) -> None:
    key = (b"xi-api-key", KEY.encode())
    assert _shake_hands(APP, path, key, (b"origin", b"https://evil.example.org")) == 403
    assert _shake_hands(APP, path, key, (b"origin", b"http://here.localhost")) == 503
    assert _shake_hands(APP, path, key, (b"origin", ORIGIN.encode())) == 503


def test_no_form_of_another_origin_is_taken() -> None:
    headers = {"xi-api-key": KEY, "origin": "https://evil.example.org"}
    refused = _ask(APP, "POST", "/v1/audio/speech", headers)
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "origin_not_allowed"
    assert _ask(APP, "GET", "/version", headers).status_code == 200
    here = {"xi-api-key": KEY, "origin": "http://here.localhost"}
    assert _ask(APP, "POST", "/v1/audio/speech", here).status_code == 503


@pytest.mark.parametrize(("method", "path"), HTTP)
def test_no_route_answers_to_a_name_that_was_rebound(method: str, path: str) -> None:
    refused = _ask(_APP_ALONE, method, path, {"host": "evil.example.org:8000"})
    assert refused.status_code == 403
    if method != "HEAD":
        assert refused.json()["error"]["code"] == "host_not_allowed"
    assert _ask(_APP_ALONE, method, path, {"host": "localhost:8000"}).status_code != 403


@pytest.mark.parametrize("path", SOCKETS)
def test_nor_does_a_websocket(path: str) -> None:
    page = (b"origin", b"http://evil.example.org:8000")
    assert _shake_hands(_APP_ALONE, path, page, host=b"evil.example.org:8000") == 403
    assert _shake_hands(_APP_ALONE, path, host=b"[::1]:8000") == 503


def test_browsers_are_told_nothing_by_default() -> None:
    app = _app()
    answer = _ask(app, "GET", "/version", {"origin": ORIGIN})
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    asked = {"origin": ORIGIN, "access-control-request-method": "POST"}
    answer = _ask(app, "OPTIONS", "/v1/audio/speech", asked)
    assert answer.status_code in (403, 405)
    assert "access-control-allow-origin" not in answer.headers


def test_named_origins_may_ask_without_credentials() -> None:
    asked = {
        "origin": ORIGIN,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    answer = _ask(APP, "OPTIONS", "/v1/audio/speech", asked)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "access-control-allow-credentials" not in answer.headers
    # A page can read why it was refused, too.
    refused = _ask(APP, "GET", "/v1/models", {"origin": ORIGIN})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == ORIGIN
    other = _ask(APP, "GET", "/v1/models", {"origin": "https://evil.example.org"})
    assert "access-control-allow-origin" not in other.headers


def test_named_origins_may_read_and_send_every_documented_header() -> None:
    document = (Path(__file__).parents[2] / "docs/api.md").read_text()
    named = re.findall(r"`(X-[A-Za-z-]+|Server-Timing|[Rr]etry-[Aa]fter(?:-ms)?)[`:]", document)
    sends = {"x-request-id", "x-request-timeout-ms", "x-slo-ttfa-ms"}
    reads = {name.lower() for name in named} - sends | {"x-request-id"}
    assert {"x-ignored-fields", "retry-after", "retry-after-ms", "x-usage-output-tokens"} <= reads
    answer = _ask(APP, "GET", "/v1/models", {"origin": ORIGIN})
    assert reads - {"x-accel-buffering"} <= _names(answer, "access-control-expose-headers")
    asked = {"origin": ORIGIN, "access-control-request-method": "POST"}
    answer = _ask(APP, "OPTIONS", "/v1/audio/speech", asked)
    assert sends <= _names(answer, "access-control-allow-headers")


def _names(answer: httpx.Response, header: str) -> set[str]:
    return {name.strip().lower() for name in answer.headers[header].split(",")}


@pytest.mark.parametrize("origin", ["*", "null", "https://*.example.org", "https://a.example/", ""])
def test_origins_are_named_one_by_one(origin: str) -> None:
    with pytest.raises(ValidationError):
        ApiConfig(cors_origins=(origin,))


def test_no_playground() -> None:
    app = _app(playground=False)
    assert _ask(app, "GET", "/playground", {}).status_code == 404


def test_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# who\n{KEY}  # somebody\n\n")
    app = _app(api_key_file=file)
    assert _ask(app, "GET", "/version", {}).status_code == 401
    assert _ask(app, "GET", "/version", {"xi-api-key": KEY}).status_code == 200
