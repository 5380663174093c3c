import json

import pytest

from voxserve.api.errors import error_headers, error_response
from voxserve.errors import (
    AuthenticationError,
    InvalidRequestError,
    UnavailableError,
    VoxserveError,
)


def test_names_that_no_utf8_can_say_are_spelled_out() -> None:
    """A client may send half a surrogate pair as the name of a parameter."""
    error = InvalidRequestError("extra_params.\ud800é is unknown", param="extra_params.\ud800é")
    body = json.loads(bytes(error_response(error, None).body))["error"]
    assert body["param"] == "extra_params.\\ud800é"
    assert body["message"] == "extra_params.\\ud800é is unknown"


@pytest.mark.parametrize(
    ("error", "name", "value"),
    [
        (InvalidRequestError("x"), "x-should-retry", "false"),
        (UnavailableError("x", retry_after_s=0.25), "retry-after", "1"),
        (UnavailableError("x", retry_after_s=0.25), "retry-after-ms", "250"),
        (AuthenticationError("x"), "www-authenticate", "Bearer"),
    ],
)
def test_what_headers_say(error: VoxserveError, name: str, value: str) -> None:
    assert error_headers(error)[name] == value
