"""`/playground`: a page that speaks. Its files are open to all: they hold nothing of the server."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response

PAGE = "/playground"
_FILES = {
    PAGE: ("index.html", "text/html"),
    **{
        f"{PAGE}/{name}": (name, media_type)
        for name, media_type in (
            ("style.css", "text/css"),
            *((f"{script}.js", "text/javascript") for script in ("app", "player", "server")),
            *((f"{script}.js", "text/javascript") for script in ("wave", "worklet")),
        )
    },
}
PATHS = frozenset(_FILES)

_POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "connect")),
        "img-src data:",
        *(f"{what} 'none'" for what in ("base-uri", "form-action", "frame-ancestors")),
    )
)
HEADERS = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


def page_routes() -> APIRouter:
    """The routes, with the files read once."""
    routes = APIRouter(include_in_schema=False)
    for path, (name, media_type) in _FILES.items():
        content = files("voxserve.api").joinpath("web", name).read_bytes()
        routes.add_api_route(path, _page(content, media_type), methods=["GET"], name=name)
    return routes


def _page(content: bytes, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        return Response(content, media_type=media_type, headers=HEADERS)

    return page
