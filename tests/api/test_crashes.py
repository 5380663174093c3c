"""What nobody foresaw: it is written to the log, and no client waits for ever."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import WebSocket
from prometheus_client import Gauge
from starlette.types import Message

from tests.models.tiny_rows import host
from voxserve.api.auth import NO_KEY
from voxserve.api.gate import AccessRecord
from voxserve.api.schemas import SessionFields, SpeechFields
from voxserve.api.service import Service
from voxserve.api.speech_job import SpeechJob
from voxserve.api.speech_request import SpeechPlan, resolve
from voxserve.api.speech_response import SpeechResponse
from voxserve.api.units import TextLimits
from voxserve.api.ws_events import Place, UtteranceEvents
from voxserve.api.ws_outbox import Outbox
from voxserve.api.ws_text import UtteranceText
from voxserve.api.ws_utterance import Settings, Utterance
from voxserve.config import Config, load_config
from voxserve.errors import VoxserveError


class Transport:
    aborted = False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


async def _nothing() -> Message:
    return {"type": "websocket.connect"}


async def _taken(message: Message) -> None:
    pass


def _config() -> Config:
    return load_config(None, {"model": "tiny"})


def _plan(fields: SpeechFields | SessionFields) -> SpeechPlan:
    return resolve(fields, host(), _config(), format_="pcm", silence=True)


def _outbox(transport: Transport) -> Outbox:
    scope = {"type": "websocket", "state": {"transport": transport}}
    return Outbox(WebSocket(scope, _nothing, _taken), 1.0, Gauge("bytes", "", registry=None))


def _raising(what: Exception) -> Callable[..., Any]:
    def crash(*given: object) -> None:
        raise what

    return crash


def test_a_sender_that_crashes_ends_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> Transport:
        transport = Transport()
        outbox = _outbox(transport)
        # The library's own RuntimeError means that the client has gone; ours do not.
        outbox.mark(None, _raising(RuntimeError("a bug")))
        await asyncio.gather(outbox.start(), return_exceptions=True)
        return transport

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(run()).aborted
    assert "a bug" in caplog.text


def test_an_utterance_that_crashes_is_over(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(UtteranceEvents):
        async def room(self) -> None:
            raise ValueError("a bug")

    async def run() -> list[tuple[Utterance, VoxserveError | None]]:
        config, fields = _config(), SessionFields()
        plan, place = _plan(fields), Place("default", 0, 0, "r.0", NO_KEY)
        text = UtteranceText(host(), plan, TextLimits.of(config), "auto")
        events = Broken(_outbox(Transport()), place, plan, "binary")
        over: list[tuple[Utterance, VoxserveError | None]] = []
        utterance = Utterance(
            *(Service(config), Settings(fields, plan, 0.2), plan, text, events, place, None),
            lambda *given: over.append(given),
        )
        await utterance.append("…")
        await utterance.end()
        await utterance.queued.wait()
        await asyncio.sleep(0)
        return over

    with caplog.at_level(logging.ERROR):
        ((_, error),) = asyncio.run(run())
    assert error is not None and (error.status, error.message) == (500, "internal error")
    assert "a bug" in caplog.text


@pytest.mark.parametrize(
    ("crash", "outcome"), [(ValueError("a bug"), "failed"), (asyncio.CancelledError(), "cancelled")]
)
def test_a_response_that_crashes_was_not_left_by_its_client(
    crash: BaseException, outcome: str
) -> None:
    async def send(message: Message) -> None:
        raise crash

    async def run() -> None:
        service, plan = Service(_config()), _plan(SpeechFields())
        job = SpeechJob("r", plan, "raw", (), 0.2, 10.0)
        scope = {
            "type": "http",
            "state": {"access": AccessRecord("r", "1a2b3c4d"), "transport": Transport()},
        }
        with pytest.raises(type(crash)):
            await SpeechResponse(service, job, [])(scope, _nothing, send)
        ended = service.outcomes.get("r", "1a2b3c4d")
        assert ended is not None and ended.outcome == outcome

    asyncio.run(run())
