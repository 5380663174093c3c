"""Sends malformed handshakes and frames to a running server, and looks at what comes back."""

import asyncio
import json
import random
import re
from dataclasses import dataclass, field

from tests.fuzz import frames

ANSWER_S = 20.0
CONNECTIONS = 16
MESSAGES = 40


@dataclass(slots=True)
class Tally:
    """handshakes, sent: how many went out. problems: what no client may cause."""

    handshakes: int = 0
    sent: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


async def attack(port: int, handshakes: int, sent: int, seed: int) -> Tally:
    """Until at least so many bad handshakes and bad frames have been sent."""
    tally = Tally()

    async def worker(number: int) -> None:
        dice = random.Random(f"{seed}-{number}")
        while tally.handshakes < handshakes or tally.sent < sent:
            if tally.sent >= sent or (tally.handshakes < handshakes and dice.random() < 0.5):
                tally.handshakes += 1
                await _shake(port, dice, tally)
            else:
                await _session(port, dice, tally)

    await asyncio.gather(*(worker(number) for number in range(CONNECTIONS)))
    return tally


async def _shake(port: int, dice: random.Random, tally: Tally) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = frames.bad_handshake(dice, f"127.0.0.1:{port}")
    try:
        writer.write(sent)
        # What is not yet a whole request is waited for, so the connection is closed from here.
        async with asyncio.timeout(ANSWER_S if sent.endswith(b"\r\n\r\n") else 0.01):
            _judge(await reader.read(65_536), sent, tally)
    except TimeoutError:
        if sent.endswith(b"\r\n\r\n") and b"Content-Length" not in sent:
            tally.problems.append(f"no answer to {sent[:200]!r}")
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()


async def _session(port: int, dice: random.Random, tally: Tally) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        path = dice.choice(frames.PATHS)
        writer.write(frames.handshake(f"127.0.0.1:{port}", path=path))
        async with asyncio.timeout(ANSWER_S):
            head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            tally.problems.append(f"a good handshake got {head[:100]!r}")
            return
        reading = asyncio.create_task(reader.read(-1))
        if dice.random() < 0.7:
            begin = {"type": "session.config", "text": " "}
            writer.write(frames.text(json.dumps(begin)))
        for _ in range(dice.randrange(MESSAGES)):
            writer.write(frames.message(dice))
            tally.sent += 1
        bad = frames.broken(dice)
        writer.write(bad)
        tally.sent += 1
        await writer.drain()
        writer.write_eof()
        async with asyncio.timeout(ANSWER_S):
            _judge(await reading, bad, tally)
    except TimeoutError:
        tally.problems.append(f"the connection stayed open after {bad[:100]!r}")
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()


def _judge(answer: bytes, sent: bytes, tally: Tally) -> None:
    if re.search(rb"Traceback|File \"|\.py\b", answer):
        tally.problems.append(f"a traceback in the answer to {sent[:200]!r}")
    if re.search(rb'"code": ?"internal_error"', answer):
        tally.problems.append(f"an internal error after {sent[:200]!r}: {answer[-300:]!r}")
    if (status := re.match(rb"HTTP/1.1 (\d+)", answer)) is not None:
        number = int(status[1])
        tally.statuses[number] = tally.statuses.get(number, 0) + 1
        if number >= 500:
            tally.problems.append(f"{number} for {sent[:200]!r}: {answer[-300:]!r}")
