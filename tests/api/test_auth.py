import pytest

from voxserve.api.auth import KeyRing
from voxserve.errors import AuthenticationError

RING = KeyRing(["first", "second"])


@pytest.mark.parametrize(
    "headers",
    [
        {b"authorization": b"Bearer first"},
        {b"authorization": b"bearer second"},
        {b"xi-api-key": b"second"},
        {b"authorization": b"Basic abc", b"xi-api-key": b"first"},
    ],
)
def test_right_keys(headers: dict[bytes, bytes]) -> None:
    assert len(RING.check("/metrics", headers)) == 8


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"authorization": b"first"},
        {b"authorization": b"Bearer "},
        {b"authorization": b"Bearer firsT"},
        {b"authorization": b"Bearer \xff\xfe"},
        {b"xi-api-key": b""},
    ],
)
def test_wrong_keys(headers: dict[bytes, bytes]) -> None:
    with pytest.raises(AuthenticationError):
        RING.check("/v1/models", headers)


def test_open_paths_and_open_servers() -> None:
    assert RING.check("/live", {}) == RING.check("/ready", {}) == "-"
    assert KeyRing([]).check("/metrics", {}) == "-"
    with pytest.raises(AuthenticationError):
        RING.check("/live/", {})


def test_key_id_tells_keys_apart_and_hides_them() -> None:
    first = RING.check("/", {b"xi-api-key": b"first"})
    assert first != RING.check("/", {b"xi-api-key": b"second"})
    assert "first" not in first
