"""Which `Host` headers a server answers to."""

import pytest
from pydantic import ValidationError

from voxserve.api.hosts import HostCheck, is_loopback
from voxserve.config import ApiConfig
from voxserve.errors import ForbiddenError


def _refused(host: bytes | None, /, **api: object) -> str:
    """What a server says to such a request; nothing if it takes it."""
    headers = {} if host is None else {b"host": host}
    try:
        HostCheck(ApiConfig.model_validate(api)).check(headers)
    except ForbiddenError as error:
        assert (error.status, error.code, error.param) == (403, "host_not_allowed", "host")
        return error.message
    return ""


@pytest.mark.parametrize(
    "host",
    [
        *(b"localhost", b"localhost:8000", b"LocalHost:1", b"localhost.", b"voice.localhost:80"),
        *(b"127.0.0.1", b"127.0.0.1:8000", b"127.8.9.1:9", b"[::1]", b"[::1]:8000", b"::1"),
        # No name, so nothing that could be rebound.
        *(b"192.168.1.5:8000", b"[fe80::1]:80", b"0.0.0.0:8000"),
        None,
    ],
)
def test_this_machine(host: bytes | None) -> None:
    assert not _refused(host)


@pytest.mark.parametrize(
    "host",
    [
        *(b"evil.example.org", b"evil.example.org:8000", b"", b":8000", b"localhost.evil.example"),
        *(b"evil-localhost", b"127.0.0.1.evil.example:80", b"[::1].evil.example", b"\xff\xfe"),
        *(b"127.0.0.1:80@evil.example", b"localhost:80:80", b"0x7f.1.evil.example", b"[evil]"),
    ],
)
@pytest.mark.parametrize("bound", ["127.0.0.1", "::1", "localhost"])
def test_other_names(host: bytes, bound: str) -> None:
    assert _refused(host, host=bound)


def test_the_answer_says_what_to_do() -> None:
    said = _refused(b"evil.example.org:8000")
    assert "Host" in said and "'evil.example.org:8000'" in said and "api.allowed_hosts" in said
    assert len(_refused(b"a" * 10_000)) < 250


@pytest.mark.parametrize(
    "api",
    [
        {"host": "0.0.0.0"},
        {"host": "::"},
        {"host": "192.168.1.5"},
        {"api_keys": ["secret"]},
        {"allowed_hosts": ["*"]},
        {"allowed_hosts": ["voice.example.org"]},
        {"allowed_hosts": ["Voice.Example.org."]},
        {"cors_origins": ["https://voice.example.org"]},
        {"cors_origins": ["http://voice.example.org:3000"]},
    ],
)
def test_where_a_name_is_taken(api: dict[str, object]) -> None:
    assert not _refused(b"voice.example.org:8000", **api)


@pytest.mark.parametrize("api", [{"host": "0.0.0.0"}, {"api_keys": ["secret"]}])
def test_names_that_were_listed_are_all_there_are(api: dict[str, object]) -> None:
    assert _refused(b"other.example.org", allowed_hosts=["voice.example.org"], **api)
    assert not _refused(b"voice.example.org", allowed_hosts=["voice.example.org"], **api)
    assert not _refused(b"10.1.2.3:8000", allowed_hosts=["voice.example.org"], **api)


@pytest.mark.parametrize("name", ["a.example:80", "https://a.example", "*.example.org", "", "a b"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ValidationError):
        ApiConfig(allowed_hosts=(name,))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *(("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("::", False), ("192.168.1.5", False), ("example.org", False)),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
