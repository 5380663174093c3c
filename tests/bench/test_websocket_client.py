"""The WebSocket client against a scripted endpoint that stamps what it sends."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from voxserve.bench.playback import replay
from voxserve.bench.records import Job, Order, Record
from voxserve.bench.worker import run

RATE_HZ = 16_000
GAPS_S = (0.03, 0.01, 0.08)
PIECE_S = 0.02
Script = Callable[[ServerConnection, list[float]], Awaitable[None]]


async def speak(socket: ServerConnection, stamps: list[float]) -> None:
    await socket.send(json.dumps({"type": "audio.start", "sample_rate": RATE_HZ}))
    for gap_s in GAPS_S:
        await asyncio.sleep(gap_s)
        await socket.send(bytes(2 * round(PIECE_S * RATE_HZ)))
        stamps.append(time.monotonic())
    await socket.send(json.dumps({"type": "audio.done", "error": False}))
    await socket.send(json.dumps({"type": "session.done"}))


async def refuse(socket: ServerConnection, stamps: list[float]) -> None:
    error = {"code": "overloaded", "message": "no room"}
    await socket.send(json.dumps({"type": "error", "error": error, "fatal": True}))
    await socket.close(1013)


async def vanish(socket: ServerConnection, stamps: list[float]) -> None:
    await socket.send(bytes(320))
    await socket.close(1011)


def _ran(
    script: Script, requests: int = 1, leave_s: float | None = None, **changes: Any
) -> tuple[list[Record], list[list[float]], list[str]]:
    """Records, the stamps of each connection, and what was said on the last of them."""
    stamps: list[list[float]] = []
    said: list[str] = []

    async def answer(socket: ServerConnection) -> None:
        mine: list[float] = []
        stamps.append(mine)
        said[:] = [str(await socket.recv()) for _ in range(3)]
        await script(socket, mine)

    async def both() -> list[Record]:
        async with serve(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            orders = [
                Order(
                    i,
                    0.02 * i,
                    f"row-{i}",
                    "Hello there.",
                    {"response_format": "pcm"},
                    leave_s=leave_s,
                )
                for i in range(requests)
            ]
            job = Job(
                url=f"http://127.0.0.1:{port}/v1/audio/speech/stream",
                transport="websocket",
                headers={},
                orders=orders,
                start_s=time.monotonic() + 0.02,
                wait_s=10.0,
                sample_rate_hz=24_000,
                frame_s=0.08,
                **changes,
            )
            return await run(job, lambda _: None)

    return asyncio.run(both()), stamps, said


def test_known_gaps_give_known_stalls() -> None:
    records, stamps, _ = _ran(speak, requests=10)
    assert all(record.outcome == "completed" for record in records)
    assert [record.audio_s for record in records] == pytest.approx([0.06] * 10)
    stalls = [replay((at_s, PIECE_S) for at_s in mine).stall_s for mine in stamps]
    errors = np.abs(np.subtract([record.stall_s for record in records], stalls))
    assert np.percentile(errors, 90) <= 0.002
    ttfas = [record.ttfa_s for record in records if record.ttfa_s is not None]
    assert len(ttfas) == 10
    assert min(ttfas) >= 0.03


def test_text_is_flushed_and_the_session_closed() -> None:
    _, _, said = _ran(speak)
    assert [json.loads(message) for message in said] == [
        {"type": "session.config", "response_format": "pcm"},
        {"type": "input.text", "text": "Hello there."},
        {"type": "input.flush", "close": True},
    ]


def test_shared_fields_go_into_the_session() -> None:
    _, _, said = _ran(speak, shared={"ref_audio": "AAAA", "ref_text": "Grüße."})
    session = {"type": "session.config", "response_format": "pcm"}
    assert json.loads(said[0]) == session | {"ref_audio": "AAAA", "ref_text": "Grüße."}


def test_misses_are_told_apart() -> None:
    ((refused,), _, _) = _ran(refuse)
    assert (refused.outcome, refused.status) == ("refused", 503)
    assert refused.error == "overloaded: no room"
    ((cut,), _, _) = _ran(vanish)
    assert (cut.outcome, cut.ttfa_s is None) == ("failed", False)
    assert "1011" in cut.error


def test_client_that_leaves_says_no_good_bye() -> None:
    closed: list[int | None] = []

    async def dawdle(socket: ServerConnection, stamps: list[float]) -> None:
        await socket.send(json.dumps({"type": "audio.start", "sample_rate": RATE_HZ}))
        await socket.send(bytes(320))
        await socket.wait_closed()
        closed.append(socket.close_code)

    ((left,), _, _) = _ran(dawdle, leave_s=0.2)
    assert (left.outcome, left.error) == ("left", "")
    assert left.ttfa_s is not None and 0.2 <= left.end_s < 2.0
    assert closed == [1006]
