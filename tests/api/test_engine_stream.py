"""`Stream` between what the engine sends and what the client wants."""

import asyncio

import numpy as np
import pytest

from voxserve import wire
from voxserve.api.engine_stream import Message, Stream
from voxserve.errors import UnavailableError

STARTED = wire.Started(1, 0.01)
CHUNK = wire.PcmChunk(1, 0, b"\0\0", False)
FINISHED = wire.Finished(1, "stop", 1, 1)
CANCELLED = wire.Cancelled(1, 0.5)


class Sent:
    def __init__(self) -> None:
        self.messages: list[wire.ToEngine] = []
        self.stream = Stream(1, self.messages.append)


async def collect(stream: Stream) -> list[Message]:
    return [message async for message in stream]


def test_messages_in_order_until_finished() -> None:
    async def talk() -> None:
        sent = Sent()
        reader = asyncio.create_task(collect(sent.stream))
        for message in (STARTED, CHUNK, FINISHED):
            sent.stream.receive(message)
            await asyncio.sleep(0)
        assert await reader == [STARTED, CHUNK, FINISHED]
        assert sent.stream.over and not sent.messages

    asyncio.run(talk())


def test_cancel_drops_what_was_not_read() -> None:
    async def talk() -> None:
        sent = Sent()
        for message in (STARTED, CHUNK):
            sent.stream.receive(message)
        sent.stream.cancel()
        sent.stream.cancel()
        sent.stream.receive(CHUNK)
        sent.stream.receive(CANCELLED)
        assert await collect(sent.stream) == [CANCELLED]
        assert sent.messages == [wire.Cancel(1)]
        assert sent.stream.release_s is not None

    asyncio.run(talk())


def test_cancel_that_crosses_the_end() -> None:
    async def talk() -> None:
        sent = Sent()
        sent.stream.cancel()
        sent.stream.receive(FINISHED)
        assert await collect(sent.stream) == []
        assert sent.stream.over

    asyncio.run(talk())


def test_failure_comes_behind_the_audio_before_it() -> None:
    async def talk() -> None:
        sent = Sent()
        sent.stream.receive(CHUNK)
        sent.stream.fail(UnavailableError("gone", code="engine_restarting"))
        assert await anext(sent.stream) == CHUNK
        with pytest.raises(UnavailableError):
            await anext(sent.stream)
        sent.stream.append(np.zeros((1, 1), np.int32), True)
        sent.stream.cancel()
        assert not sent.messages

    asyncio.run(talk())


def test_progress_is_reported_in_steps() -> None:
    async def talk() -> None:
        sent = Sent()
        for tenth in range(1, 21):
            sent.stream.taken(tenth / 10)
        assert 3 <= len(sent.messages) <= 4
        assert all(isinstance(message, wire.Progress) for message in sent.messages)

    asyncio.run(talk())


def test_a_wide_window_is_reported_on_less_often() -> None:
    async def talk() -> None:
        messages: list[wire.ToEngine] = []
        stream = Stream(1, messages.append, window_s=32.0)
        for second in range(1, 33):
            stream.taken(float(second))
        assert messages == [wire.Progress(1, float(second)) for second in range(4, 33, 4)]

    asyncio.run(talk())


def test_text_rows_travel_as_bytes() -> None:
    async def talk() -> None:
        sent = Sent()
        sent.stream.append(np.array([[7, 8], [9, 10]], np.int64), False)
        (message,) = sent.messages
        assert isinstance(message, wire.AppendText)
        assert wire.unpack_rows(message.rows, 2).tolist() == [[7, 8], [9, 10]]

    asyncio.run(talk())
