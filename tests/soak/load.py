"""Clients of every kind against one server: some listen, some leave, some ask for nonsense."""

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx
from websockets.asyncio.client import ClientConnection, connect

from tests.api.server_process import ServerProcess

BYTES_PER_S = 48_000
WAIT_S = 120.0
KINDS = {"listen": 50, "session": 20, "leave": 10, "cancel": 10, "nonsense": 5, "refused": 5}
"""Weights. `refused`: sent under a second's time limit that may well be missed."""


@dataclass(slots=True)
class Report:
    """counts: by kind. cancel_s: input.cancel to audio.cancelled. problems: what must not be."""

    counts: Counter[str] = field(default_factory=Counter)
    cancel_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


async def load(server: ServerProcess, seconds: float, clients: int, seed: int) -> Report:
    """Keep so many clients busy for so long."""
    report = Report()
    ends_at = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        base_url=server.url, timeout=WAIT_S, limits=limits, trust_env=False
    ) as http:

        async def client(number: int) -> None:
            dice = random.Random(f"{seed}-{number}")
            while time.monotonic() < ends_at:
                (kind,) = dice.choices(list(KINDS), list(KINDS.values()))
                try:
                    async with asyncio.timeout(WAIT_S):
                        await _ACTS[kind](server, http, dice, report)
                except (TimeoutError, httpx.HTTPError, OSError) as error:
                    report.problems.append(f"{kind}: {error!r}")
                report.counts[kind] += 1

        await asyncio.gather(*(client(number) for number in range(clients)))
    return report


def _fields(dice: random.Random, **more: object) -> dict[str, object]:
    frames = dice.randrange(5, 40)
    extra = {"ignore_eos": True, "max_frames": frames}
    return {"input": "Some words.", "response_format": "pcm", "extra_params": extra, **more}


async def _listen(
    server: ServerProcess, http: httpx.AsyncClient, dice: random.Random, report: Report
) -> None:
    fields = _fields(dice, stream=dice.random() < 0.7)
    answer = await http.post("/v1/audio/speech", json=fields)
    extra = fields["extra_params"]
    assert isinstance(extra, dict)
    wanted = round(extra["max_frames"] * 0.08 * BYTES_PER_S)
    if answer.status_code != 200 or len(answer.content) != wanted:
        report.problems.append(f"{answer.status_code}, {len(answer.content)} bytes of {wanted}")


async def _leave(
    server: ServerProcess, http: httpx.AsyncClient, dice: random.Random, report: Report
) -> None:
    async with http.stream("POST", "/v1/audio/speech", json=_fields(dice)) as answer:
        left = dice.randrange(4)
        async for _ in answer.aiter_raw():
            if not left:
                break
            left -= 1


async def _nonsense(
    server: ServerProcess, http: httpx.AsyncClient, dice: random.Random, report: Report
) -> None:
    bodies = (b"{", b"[]", b'{"input": ""}', b'{"input": "a", "voice": "nobody"}', b"\xff")
    answer = await http.post("/v1/audio/speech", content=dice.choice(bodies))
    if not 400 <= answer.status_code < 500:
        report.problems.append(f"{answer.status_code} for nonsense")


async def _refused(
    server: ServerProcess, http: httpx.AsyncClient, dice: random.Random, report: Report
) -> None:
    headers = {"X-Request-Timeout-Ms": str(dice.randrange(1, 1000))}
    try:
        answer = await http.post("/v1/audio/speech", json=_fields(dice), headers=headers)
    except httpx.RemoteProtocolError:
        return  # cut after the first byte, which cannot be taken for an end
    if answer.status_code not in (200, 504):
        report.problems.append(f"{answer.status_code} for a time limit")


async def _session(
    server: ServerProcess, http: httpx.AsyncClient, dice: random.Random, report: Report
) -> None:
    async with connect(server.ws_url, max_size=None, proxy=None) as socket:
        await _begin(socket, dice)
        await socket.send('{"type": "input.flush"}')
        await _until(socket, "session.done", report)


async def _cancel(
    server: ServerProcess, http: httpx.AsyncClient, dice: random.Random, report: Report
) -> None:
    async with connect(server.ws_url, max_size=None, proxy=None) as socket:
        await _begin(socket, dice)
        await socket.send('{"type": "input.flush"}')
        await asyncio.sleep(dice.random() * 0.5)
        begin = time.monotonic()
        await socket.send('{"type": "input.cancel"}')
        await socket.send('{"type": "session.close"}')
        if await _until(socket, "audio.cancelled", report, or_done=True):
            report.cancel_s.append(time.monotonic() - begin)
            async for message in socket:
                if isinstance(message, bytes):
                    report.problems.append("audio after audio.cancelled")


async def _begin(socket: ClientConnection, dice: random.Random) -> None:
    config = {"type": "session.config", **_fields(dice)}
    del config["input"]
    await socket.send(json.dumps(config))
    for word in ("Some ", "more ", "words."):
        await socket.send(json.dumps({"type": "input.text", "text": word}))


async def _until(
    socket: ClientConnection, wanted: str, report: Report, *, or_done: bool = False
) -> bool:
    """Whether it came, and not the utterance's own end before."""
    async for message in socket:
        if isinstance(message, bytes):
            continue
        event = json.loads(message)
        if event["type"] == "error":
            report.problems.append(f"event {event}")
        if event["type"] == wanted:
            return True
        if or_done and event["type"] == "session.done":
            return False
    if not or_done:
        report.problems.append(f"no {wanted}")
    return False


_ACTS = {
    "listen": _listen,
    "session": _session,
    "leave": _leave,
    "cancel": _cancel,
    "nonsense": _nonsense,
    "refused": _refused,
}
