from pathlib import Path

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


def test_file_is_watched(tmp_path: Path) -> None:
    now = [0.0]
    file = tmp_path / "keys"
    file.write_text("old\n")
    ring = KeyRing(["fixed"], file, lambda: now[0])
    ring.check("/", {b"xi-api-key": b"old"})
    file.write_text("newer\n")
    now[0] += 2
    ring.check("/", {b"xi-api-key": b"newer"})
    ring.check("/", {b"xi-api-key": b"fixed"})
    with pytest.raises(AuthenticationError):
        ring.check("/", {b"xi-api-key": b"old"})


def test_keys_stay_while_the_file_is_gone(tmp_path: Path) -> None:
    now = [0.0]
    file = tmp_path / "keys"
    file.write_text("one\n")
    ring = KeyRing([], file, lambda: now[0])
    file.unlink()
    now[0] += 2
    ring.check("/", {b"xi-api-key": b"one"})
    file.write_text("")
    now[0] += 2
    with pytest.raises(AuthenticationError):
        ring.check("/", {b"xi-api-key": b"one"})


def test_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# none yet\n")
    with pytest.raises(AuthenticationError):
        KeyRing([], file).check("/", {})
    with pytest.raises(OSError, match="absent"):
        KeyRing([], tmp_path / "absent")
