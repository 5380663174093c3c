"""The receiving half of a WebSocket session, in whatever dialect: it never waits for the sender."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from fastapi import WebSocket

from voxserve.api import ws_limits as limits
from voxserve.api.gate import AccessRecord
from voxserve.api.ws_life import Life
from voxserve.errors import InvalidRequestError, TimeoutExceededError, VoxserveError


class Dialect(Protocol):
    """A session as its client speaks to it."""

    @property
    def life(self) -> Life: ...

    async def take(self, text: str) -> None:
        """One message. What is wrong with it is told to the client."""

    def complain(self, error: VoxserveError, fatal: int | None = None) -> None:
        """Tell of an error that is no message's; with `fatal` the session closes behind it."""

    def deadline(self) -> float:
        """When `on_deadline` has something to do."""

    async def on_deadline(self, now: float) -> None: ...

    def on_auto_flush(self, context: str) -> None:
        """Its utterance is about to end unasked."""


async def serve(websocket: WebSocket, session: Dialect, record: AccessRecord) -> None:
    """The whole of an accepted session, until its connection is gone, whoever ended it."""
    async with _living(session.life, record):
        outbox = session.life.outbox
        while True:
            wait_s = max(0.0, session.deadline() - time.monotonic())
            try:
                async with asyncio.timeout(None if outbox.closing else wait_s):
                    message = await websocket.receive()
            except TimeoutError:
                await session.on_deadline(time.monotonic())
                continue
            if message["type"] == "websocket.disconnect":
                return
            if outbox.closing:
                continue
            text = message.get("text")
            if text is None:
                error = InvalidRequestError("binary messages are not taken", code="binary_message")
                session.complain(error, limits.UNSUPPORTED_DATA)
            else:
                await session.take(text)


async def flush_or_idle(session: Dialect, idle_s: float, now: float) -> None:
    """What a session in use does at its deadline."""
    life = session.life
    if life.contexts.utterances():
        try:
            await life.flush_due(now, session.on_auto_flush)
        except VoxserveError as error:
            session.complain(error)
    elif now >= life.last_active + idle_s:
        idle = TimeoutExceededError("the session was idle", code="idle_timeout")
        session.complain(idle, limits.POLICY)


def check_size(text: str) -> None:
    """Raises InvalidRequestError (`message_too_big`)."""
    size = len(text) if text.isascii() else len(text.encode())
    if size > limits.MAX_TEXT_BYTES:
        raise InvalidRequestError(
            f"message has {size} bytes, at most {limits.MAX_TEXT_BYTES}", code="message_too_big"
        )


@asynccontextmanager
async def _living(life: Life, record: AccessRecord) -> AsyncIterator[None]:
    """Send and count the session while the block runs; leave nothing behind it."""
    service, outbox = life.service, life.outbox
    sender = outbox.start()
    service.sessions.add(life)
    service.metrics.sessions.inc()
    try:
        yield
    finally:
        service.metrics.sessions.dec()
        service.sessions.discard(life)
        if outbox.slow:
            service.metrics.slow_closed.add()
        sender.cancel()
        abandoned = [utterance.abandon() for utterance in life.contexts.utterances()]
        await asyncio.gather(sender, *abandoned, return_exceptions=True)
        record.fields.update(session=life.session_id, utterances=life.utterances)
