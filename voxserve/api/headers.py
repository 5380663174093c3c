"""Request headers with a meaning of our own."""

import math

from starlette.requests import HTTPConnection

from voxserve.errors import InvalidRequestError

MAX_MS = 3_600_000.0
SLO_TTFA = "x-slo-ttfa-ms"
REQUEST_TIMEOUT = "x-request-timeout-ms"


def header_ms(connection: HTTPConnection, name: str) -> float | None:
    """A duration in milliseconds, None if absent. Raises InvalidRequestError naming the header."""
    text = connection.headers.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= MAX_MS:
        raise InvalidRequestError(
            f"{name} is {text[:40]!r}, must be milliseconds up to {MAX_MS:.0f}", param=name
        )
    return value
