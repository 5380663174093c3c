"""One utterance over our WebSocket, on a connection of its own."""

import asyncio
import json
import time

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from voxserve.bench.listening import STUB_HEADER, Listening, reason
from voxserve.bench.records import Order


def messages(order: Order) -> list[str]:
    """What the client says: the session, the text, and that the text is complete."""
    said: list[dict[str, object]] = [
        {"type": "session.config", **order.body},
        {"type": "input.text", "text": order.text},
        {"type": "input.flush", "close": True},
    ]
    return [json.dumps(message) for message in said]


async def listen(url: str, headers: dict[str, str], said: list[str], listening: Listening) -> None:
    """Speak one text and fill `listening` until the utterance is over.

    Never raises for what a server or a network does: that is what is being recorded.
    """
    listening.sent_s = time.monotonic()
    try:
        async with connect(
            url.replace("http", "ws", 1), additional_headers=headers, compression=None, proxy=None
        ) as socket:
            listening.stub = bool(socket.response and STUB_HEADER in socket.response.headers)
            try:
                await _converse(socket, said, listening)
            except asyncio.CancelledError:
                # Who leaves says no good-bye, and waits for none.
                socket.transport.abort()
                raise
    except InvalidStatus as refused:
        listening.status = refused.response.status_code
        listening.problem = reason(bytes(refused.response.body or b""))
    except ConnectionClosed as closed:
        listening.problem = listening.problem or str(closed)
    except (OSError, WebSocketException) as error:
        listening.problem = str(error) or type(error).__name__
    finally:
        listening.end_s = listening.end_s or time.monotonic()


async def _converse(socket: ClientConnection, said: list[str], listening: Listening) -> None:
    for message in said:
        await socket.send(message)
    async for received in socket:
        now_s = time.monotonic()
        if isinstance(received, bytes):
            listening.status = 200
            listening.hear(now_s, received)
        elif _over(json.loads(received), listening):
            listening.end_s = now_s
            return


def _over(event: dict[str, object], listening: Listening) -> bool:
    """Take in one event; whether it is the last of the utterance."""
    match event:
        case {"type": "session.configured" | "audio.start", "sample_rate": int(rate)}:
            listening.sample_rate_hz = rate
        case {"type": "session.done"}:
            listening.complete = True
            listening.status = listening.status or 200
            return True
        case {"type": "error", "error": error}:
            assert isinstance(error, dict)
            code = str(error.get("code"))
            listening.problem = f"{code}: {error.get('message')}"
            if not listening.arrivals:
                listening.status = 503 if code in ("overloaded", "draining") else 500
            return True
    return False
