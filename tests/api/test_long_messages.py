"""One message with a long text over a WebSocket: others are heard while it is taken."""

import asyncio
from collections.abc import Awaitable

import pytest
from prometheus_client import Gauge
from starlette.types import Message
from starlette.websockets import WebSocket

from tests.api.server_process import ServerProcess, forced
from tests.api.ws_client import session
from tests.models.tiny_rows import host
from voxserve.api.auth import NO_KEY
from voxserve.api.schemas import SessionFields
from voxserve.api.service import Service
from voxserve.api.speech_request import resolve
from voxserve.api.units import TextLimits
from voxserve.api.ws_events import Place, UtteranceEvents
from voxserve.api.ws_outbox import Outbox
from voxserve.api.ws_text import Granularity, UtteranceText
from voxserve.api.ws_utterance import Settings, Utterance
from voxserve.config import Config, load_config
from voxserve.errors import InvalidRequestError

LONG = ("The committee paid $3.50 to Dr. Smith, as it always did. " * 300)[:16_000]
GRANULARITIES: tuple[Granularity, ...] = ("auto", "none", "sentence", "clause")


def _config() -> Config:
    return load_config(None, {"model": "tiny"})


def _text(granularity: Granularity, normalization: str = "auto") -> UtteranceText:
    fields = SessionFields.model_validate({"text_normalization": normalization})
    plan = resolve(fields, host(), _config(), format_="pcm", silence=True)
    return UtteranceText(host(), plan, TextLimits.of(_config()), granularity)


def _units(text: UtteranceText) -> list[str]:
    units = []
    while text.queue.startable:
        units.append(text.queue.head().text)
        text.queue.drop_head()
    assert text.queue.drained
    return units


async def _turns_of_others(work: Awaitable[object]) -> int:
    """How often the event loop came round while the work was done."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count())
    await work
    others.cancel()
    return turns


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_a_long_text_is_taken_in_slices(granularity: Granularity) -> None:
    text, whole = _text(granularity), _text(granularity)
    assert sum(1 for _ in text.append(LONG)) >= len(LONG) // 256 - 1
    for at in range(0, len(LONG), 100):
        assert not list(whole.append(LONG[at : at + 100])), "short ones are taken at once"
    for each in (text, whole):
        asyncio.run(each.end())
    units = _units(text)
    # A live unit ends by what was measured of it, which is done in steps from each piece's start.
    assert granularity in ("auto", "none") or units == _units(whole)
    assert "".join("".join(units).split()) == "".join(LONG.split())


@pytest.mark.parametrize("normalization", ["auto", "on"])
def test_text_that_is_read_at_its_end_is_read_beside_the_loop(normalization: str) -> None:
    text = _text("none", normalization) if normalization == "on" else _text("sentence")
    for _ in text.append(LONG):
        pass
    turns = asyncio.run(_turns_of_others(text.end()))
    assert _units(text)
    # What has been spoken in sentences has nothing left to read.
    assert turns > 10 if normalization == "on" else turns <= 1


def test_a_piece_that_is_refused_is_not_taken_in_part() -> None:
    text = _text("sentence")
    with pytest.raises(InvalidRequestError):
        list(text.append(LONG + "\0"))
    with pytest.raises(InvalidRequestError):
        list(text.append("a" * 16_385))
    assert text.chars == 0
    list(text.append("Short."))
    asyncio.run(text.end())
    assert _units(text) == ["Short."]


def _utterance(before: Utterance | None, over: list[object]) -> Utterance:
    """One whose service has no engine: it is never spoken as long as `before` is not."""

    async def nothing() -> Message:
        return {"type": "websocket.connect"}

    async def taken(message: Message) -> None:
        pass

    config, fields = _config(), SessionFields()
    plan = resolve(fields, host(), config, format_="pcm", silence=True)
    text = UtteranceText(host(), plan, TextLimits.of(config), "sentence")
    scope = {"type": "websocket", "state": {"transport": None}}
    outbox = Outbox(WebSocket(scope, nothing, taken), 1.0, Gauge("bytes", "", registry=None))
    place = Place("default", 0, 0, "r.0", NO_KEY)
    events = UtteranceEvents(outbox, place, plan, "binary")
    service, settings = Service(config), Settings(fields, plan, 0.2)
    return Utterance(
        service, settings, plan, text, events, place, before, lambda *given: over.append(given)
    )


def test_others_are_served_meanwhile_and_a_cancel_ends_it() -> None:
    async def run() -> tuple[int, int, int]:
        over: list[object] = []
        first = _utterance(None, over)
        whole, cut = _utterance(first, over), _utterance(first, over)
        turns = await _turns_of_others(whole.append(LONG))
        taking = asyncio.create_task(cut.append(LONG))
        await asyncio.sleep(0)
        cut.cancel("client_cancel")
        await taking
        counts = [len(each.text.queue._all) for each in (whole, cut)]
        for each in (whole, first):
            each.cancel("client_cancel")
        for each in (whole, cut, first):
            await each.abandon()
        return turns, counts[0], counts[1]

    turns, whole, cut = asyncio.run(run())
    assert turns >= len(LONG) // 256 - 1
    assert whole > 100 and cut < 10


@pytest.mark.parametrize(
    ("granularity", "normalization"), [("auto", "auto"), ("none", "on"), ("sentence", "auto")]
)
def test_a_cancel_behind_a_long_text(
    server: ServerProcess, granularity: str, normalization: str
) -> None:
    async def talk() -> None:
        async with session(server.ws_url) as client:
            extra = forced(13)["extra_params"]
            await client.configure(
                split_granularity=granularity,
                text_normalization=normalization,
                extra_params=extra,
            )
            await client.send("input.text", text=LONG)
            await client.send("input.flush")
            await client.send("input.cancel")
            await client.send("input.text", text="And then.")
            await client.send("input.flush")
            heard = await client.until("audio.cancelled", "error")
            assert heard.last["utterance_index"] == 0 and heard.last["type"] == "audio.cancelled"
            after = await client.until("session.done", "error")
            assert {event["utterance_index"] for event in after.events} == {1}
            assert after.last["type"] == "session.done" and after.audio

    asyncio.run(talk())
