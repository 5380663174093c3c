"""The short form of `make fuzz`."""

import asyncio
import random
import re
import socket
from pathlib import Path

import pytest

from tests.api.server_process import ServerProcess
from tests.fuzz import frames, requests, sockets
from tests.fuzz.verdict import check_unharmed


def test_malformed_handshakes_and_frames(server: ServerProcess) -> None:
    tally = asyncio.run(sockets.attack(server.port, handshakes=60, sent=400, seed=1))
    assert tally.problems == []
    assert tally.handshakes >= 60 and tally.sent >= 400
    assert set(tally.statuses) & {400, 403, 404, 405}
    check_unharmed(server)


def test_requests_that_break_every_constraint(server: ServerProcess, tmp_path: Path) -> None:
    report = requests.attack(server.url, examples=1, seed=1, folder=tmp_path, brief=True)
    assert re.search(r"[1-9]\d* generated", report), report
    check_unharmed(server)


def test_one_seed_one_attack() -> None:
    def made(seed: int) -> list[bytes]:
        dice = random.Random(seed)
        makers = (frames.broken, frames.message, lambda dice: frames.bad_handshake(dice, "here"))
        return [maker(dice) for _ in range(50) for maker in makers]

    assert made(7) == made(7) != made(8)


@pytest.mark.parametrize("extra", [{f"X-{n}": "y" for n in range(200)}, {"X-Long": "y" * 9000}])
def test_handshake_that_cannot_be_read_is_answered(
    server: ServerProcess, extra: dict[str, str]
) -> None:
    """The library below accepts 128 headers of 8 KiB, and tells nobody of others."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(frames.handshake("here", extra))
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ") and b'"invalid_http"' in answer
