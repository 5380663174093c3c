"""Encoding beside the event loop, without a server."""

import asyncio
import gc
import threading
import time
import weakref

import pytest
from prometheus_client import CollectorRegistry, Histogram

from tests.audio.sounds import RATE_HZ, decode, voice
from voxserve.api.encoding import Encoders
from voxserve.api.metrics import OWN_LABELS, BoundHistogram
from voxserve.audio.formats import FORMATS
from voxserve.audio.output import Output, OutputStream, Piece, output_for
from voxserve.errors import GenerationError

PCM = voice(150, 1.0).tobytes()
CHUNK = 3840
MP3 = output_for("mp3", RATE_HZ, None, 1.0)


def encoders(threads: int = 2) -> tuple[Encoders, CollectorRegistry]:
    registry = CollectorRegistry()
    labels = (*OWN_LABELS, "format")
    histogram = Histogram("encoder_seconds", "For the test", labels, registry=registry)
    return Encoders(threads, BoundHistogram(histogram, ("tiny", "0"))), registry


async def encode(all_: Encoders, output: Output, *, whole: bool = False) -> bytes:
    encoding = all_.open(output, whole=whole)
    encoding.prepare()
    pieces = [await encoding.feed(PCM[at : at + CHUNK]) for at in range(0, len(PCM), CHUNK)]
    pieces.append(await encoding.finish())
    assert await encoding.finish() == await encoding.feed(PCM) == Piece()
    encoding.close()
    return b"".join(piece.data for piece in pieces)


def test_many_streams_in_few_threads_keep_their_order() -> None:
    async def run() -> None:
        all_, _ = encoders(threads=2)
        flac = output_for("flac", RATE_HZ, None, 1.0)
        for data in await asyncio.gather(*(encode(all_, flac) for _ in range(12))):
            assert decode(data)[0].tobytes() == PCM

    asyncio.run(run())


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_same_as_in_one_thread(name: str, whole: bool) -> None:
    async def run() -> None:
        all_, registry = encoders()
        output = output_for(name, RATE_HZ, None, 1.0)
        stream = output.open(whole=whole)
        pieces = [stream.feed(PCM[at : at + CHUNK]) for at in range(0, len(PCM), CHUNK)]
        expected = b"".join(piece.data for piece in [*pieces, stream.finish()])
        stream.close()
        got = await encode(all_, output, whole=whole)
        assert len(got) == len(expected)
        assert name == "opus" or got == expected  # each Ogg stream draws a number
        labels = {"model": "tiny", "replica": "0", "format": name}
        count = registry.get_sample_value("encoder_seconds_count", labels)
        assert count == (None if output.verbatim else -(-len(PCM) // CHUNK) + 3)

    asyncio.run(run())


def test_samples_that_go_out_as_they_come_need_no_thread() -> None:
    async def run() -> None:
        all_, _ = encoders()
        before = threading.active_count()
        await encode(all_, output_for("wav", RATE_HZ, None, 1.0))
        assert threading.active_count() == before

    asyncio.run(run())


def test_event_loop_runs_while_a_long_piece_is_encoded() -> None:
    async def run() -> None:
        all_, _ = encoders()
        encoding = all_.open(MP3, whole=False)
        await encoding.feed(PCM[:CHUNK])
        task = asyncio.create_task(encoding.feed(PCM * 60))
        turns = 0
        while not task.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert turns > 20
        encoding.close()

    asyncio.run(run())


def stream_of(encoding: object) -> "weakref.ref[OutputStream]":
    stream = encoding._stream  # type: ignore[attr-defined]
    assert isinstance(stream, OutputStream)
    return weakref.ref(stream)


@pytest.mark.parametrize("busy", [False, True])
def test_closing_frees_the_encoder_at_once(busy: bool) -> None:
    """Without waiting for the garbage collector, and right behind the piece in the works."""

    async def run() -> None:
        all_, _ = encoders()
        encoding = all_.open(MP3, whole=False)
        await encoding.feed(PCM[:CHUNK])
        held = stream_of(encoding)
        if busy:
            task = asyncio.create_task(encoding.feed(PCM * 10))
            await asyncio.sleep(0.005)
            task.cancel()
        encoding.close()
        deadline = time.monotonic() + 10
        while held() is not None:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.001)

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


def test_stream_that_ends_before_it_began_is_never_opened() -> None:
    async def run() -> None:
        all_, _ = encoders(threads=1)
        encoding = all_.open(MP3, whole=False)
        encoding.close()
        encoding.prepare()
        assert await encoding.feed(PCM) == Piece()

    asyncio.run(run())


def test_what_ffmpeg_refuses_fails_the_request() -> None:
    async def run() -> None:
        all_, _ = encoders()
        encoding = all_.open(Output(FORMATS["mp3"], 12_345, 12_345, 12_345), whole=False)
        with pytest.raises(GenerationError, match="could not be encoded") as failed:
            await encoding.feed(PCM)
        assert failed.value.status == 500
        encoding.close()

    asyncio.run(run())
