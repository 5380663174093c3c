"""The life of a WebSocket session, whatever dialect it speaks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from voxserve.api.elevenlabs_session import ElevenSession
from voxserve.api.gate import AccessRecord
from voxserve.api.service import Service
from voxserve.api.ws_outbox import Outbox
from voxserve.api.ws_session import SpeechSession


@asynccontextmanager
async def living(
    session: SpeechSession | ElevenSession,
    service: Service,
    outbox: Outbox,
    record: AccessRecord,
) -> AsyncIterator[None]:
    """Send from `outbox` and count the session while the block runs; leave nothing behind it."""
    sender = outbox.start()
    service.sessions.add(session)
    service.metrics.sessions.inc()
    try:
        yield
    finally:
        service.metrics.sessions.dec()
        service.sessions.discard(session)
        if outbox.slow:
            service.metrics.slow_closed.add()
        sender.cancel()
        abandoned = [utterance.abandon() for utterance in session.contexts.utterances()]
        await asyncio.gather(sender, *abandoned, return_exceptions=True)
        record.fields.update(session=session.session_id, utterances=session.utterances)
