"""Units spoken one after another, with the engine's side played by hand."""

import asyncio
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from voxserve import wire
from voxserve.api.engine_stream import Stream
from voxserve.api.joined_stream import JoinedStream, Pace
from voxserve.api.units import UnitQueue, WholeUnit, unit_seed
from voxserve.errors import UnavailableError
from voxserve.requests import Prompt

RATE_HZ = 1000
STREAMED = Pace(ttfa_s=0.2, max_ahead_s=None, heard_hz=RATE_HZ)


def unit(chars: int = 20) -> WholeUnit:
    prompt = Prompt(
        rows=np.zeros((1, 1), np.int32),
        inject=np.zeros((0, 1), np.int32),
        text_open=False,
        max_steps=100,
        sampling=np.zeros(5, np.float32),
        seed=7,
        input_tokens=chars,
    )
    return WholeUnit("a" * chars, prompt)


@dataclass
class Engine:
    """What was submitted, and the streams to answer on. answers: at once, with a second each."""

    answers: bool = False
    prompts: list[Prompt] = field(default_factory=list)
    ttfa_s: list[float | None] = field(default_factory=list)
    ahead_s: list[float | None] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    sent: list[wire.ToEngine] = field(default_factory=list)

    def submit(
        self, index: int, prompt: Prompt, ttfa_s: float | None, max_ahead_s: float | None
    ) -> Stream:
        self.prompts.append(prompt)
        self.ttfa_s.append(ttfa_s)
        self.ahead_s.append(max_ahead_s)
        self.streams.append(Stream(len(self.streams), self.sent.append))
        if self.answers:
            self.makes(index, 1.0)
            self.ends(index, "stop" if index else "length")
        return self.streams[-1]

    def makes(self, number: int, seconds: float) -> None:
        pcm = bytes(round(seconds * RATE_HZ) * 2)
        self.streams[number].receive(wire.PcmChunk(number, 0, pcm, last=False))

    def ends(self, number: int, reason: str = "stop", frames: int = 10, lag: int = 0) -> None:
        finished = wire.Finished(number, reason, frames, frames + lag)  # type: ignore[arg-type]
        self.streams[number].receive(finished)


def joined(
    engine: Engine, queue: UnitQueue, pace: Pace = STREAMED, most: int | None = None
) -> JoinedStream:
    stream = JoinedStream(queue, engine.submit, pace, seed=7, max_frames=most)
    stream.start()
    return stream


def test_units_follow_each_other_and_add_up() -> None:
    async def run() -> None:
        engine, queue = Engine(answers=True), UnitQueue([unit(), unit(), unit()], closed=True)
        stream = joined(engine, queue)
        heard = [(part, message) async for part, message in stream]
        kinds = [(part.index, type(message).__name__) for part, message in heard]
        assert kinds == [(i, kind) for i in range(3) for kind in ("PcmChunk", "Finished")]
        assert [part.start_s for part, _ in heard[::2]] == [0.0, 1.0, 2.0]
        assert stream.is_last(heard[-1][0])
        assert [prompt.seed for prompt in engine.prompts] == [unit_seed(7, i) for i in range(3)]
        assert (stream.frames, stream.reason, stream.parts) == (30, "length", 3)
        assert queue.input_tokens == 60

    asyncio.run(run())


def test_next_unit_is_submitted_before_the_present_one_ends() -> None:
    async def run() -> None:
        engine, queue = Engine(), UnitQueue([unit(100), unit(100)], closed=True)
        stream = joined(engine, queue)
        for seconds, submitted in ((0.5, 1), (2.5, 1), (1.5, 1), (0.5, 1)):
            engine.makes(0, seconds)
            await anext(stream)
            assert len(engine.streams) == submitted
        # 5 s were made, all that a hundred letters take: once they are nearly played, it is time.
        stream.played(4.0)
        engine.makes(0, 0.1)
        await anext(stream)
        assert len(engine.streams) == 2
        assert engine.ttfa_s[1] == pytest.approx(1.1, abs=0.1)
        # An answer that takes its time is never refused for it, only late.
        engine.streams[1].fail(UnavailableError("too late", code="overloaded"))
        engine.ends(0)
        await anext(stream)
        engine_task = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        while len(engine.streams) < 3:
            await asyncio.sleep(0)
        assert engine.ttfa_s[2] is None
        engine.makes(2, 1.0)
        part, _ = await engine_task
        assert part.index == 1 and part.start_s == pytest.approx(5.1)

    asyncio.run(run())


def test_first_unit_may_be_refused() -> None:
    async def run() -> None:
        engine = Engine()
        stream = joined(engine, UnitQueue([unit(), unit()], closed=True))
        engine.streams[0].fail(UnavailableError("too late", code="overloaded"))
        with pytest.raises(UnavailableError):
            await anext(stream)

    asyncio.run(run())


def test_buffered_answers_hold_one_slot() -> None:
    async def run() -> None:
        engine = Engine()
        pace = Pace(None, None, RATE_HZ)
        stream = joined(engine, UnitQueue([unit(), unit()], closed=True), pace)
        engine.makes(0, 30.0)
        await anext(stream)
        assert len(engine.streams) == 1
        engine.ends(0)
        await anext(stream)
        following = asyncio.create_task(anext(stream))
        while len(engine.streams) < 2:
            await asyncio.sleep(0)
        engine.makes(1, 1.0)
        assert (await following)[0].index == 1

    asyncio.run(run())


def test_next_unit_waits_for_a_listener_who_is_far_behind() -> None:
    async def run() -> None:
        engine = Engine()
        pace = Pace(0.2, 4.0, RATE_HZ)
        stream = joined(engine, UnitQueue([unit(), unit()], closed=True), pace)
        engine.makes(0, 3.9)
        engine.ends(0)
        await anext(stream)
        await anext(stream)
        following = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.01)
        assert len(engine.streams) == 1
        stream.played(3.0)
        stream.feed()
        while len(engine.streams) < 2:
            await asyncio.sleep(0)
        assert engine.ahead_s == [4.0, pytest.approx(3.1, abs=0.1)]
        engine.makes(1, 1.0)
        await following

    asyncio.run(run())


@pytest.mark.parametrize("lag", [0, 7])
def test_frames_are_those_of_the_whole_answer(lag: int) -> None:
    """A delay pattern's last steps are no frames: they neither count nor take room."""

    async def run() -> None:
        engine, queue = Engine(), UnitQueue([unit(), unit(), unit()], closed=True)
        stream = joined(engine, queue, replace(STREAMED, lag=lag), most=15)
        engine.makes(0, 1.0)
        engine.ends(0, lag=lag)
        await anext(stream)
        await anext(stream)
        following = asyncio.create_task(anext(stream))
        while len(engine.streams) < 2:
            await asyncio.sleep(0)
        assert engine.prompts[1].max_steps == 5 + lag
        engine.ends(1, "length", frames=5, lag=lag)
        await following
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert (stream.frames, stream.reason, len(engine.streams)) == (15, "length", 2)

    asyncio.run(run())


def test_cancel_stops_every_unit() -> None:
    async def run() -> None:
        engine = Engine()
        stream = joined(engine, UnitQueue([unit(4), unit(4), unit(4)], closed=True))
        engine.makes(0, 1.0)
        await anext(stream)
        assert len(engine.streams) == 2
        stream.cancel()
        assert engine.sent == [wire.Cancel(0), wire.Cancel(1)]
        engine.streams[0].receive(wire.Cancelled(0, 1.0))
        part, message = await anext(stream)
        assert part.index == 0 and isinstance(message, wire.Cancelled)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert len(engine.streams) == 2

    asyncio.run(run())


def test_cancel_while_there_is_no_text() -> None:
    async def run() -> None:
        engine, queue = Engine(), UnitQueue([unit()])
        stream = joined(engine, queue)
        engine.ends(0)
        await anext(stream)
        following = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.01)
        assert not following.done()
        stream.cancel()
        with pytest.raises(StopAsyncIteration):
            await following

    asyncio.run(run())


def test_progress_is_told_to_the_unit_it_belongs_to() -> None:
    async def run() -> None:
        engine = Engine()
        stream = joined(engine, UnitQueue([unit(4), unit(4)], closed=True))
        engine.makes(0, 1.0)
        engine.ends(0)
        await anext(stream)
        stream.taken(1.0)
        await anext(stream)
        engine.makes(1, 3.0)
        await anext(stream)
        stream.taken(1.2)
        stream.taken(2.0)
        stream.played(1.5)
        assert engine.sent == [
            wire.Progress(1, 1.0),
            wire.Playback(1, 0.5),
        ]

    asyncio.run(run())
