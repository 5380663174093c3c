import asyncio
from dataclasses import replace

import numpy as np
import pytest

from tests.audio.recordings import noise, sounding, tone
from tests.models.tiny_rows import host
from voxserve.api import clips
from voxserve.api.clip_source import ClipSource
from voxserve.api.clips import Clips, content_key, with_text
from voxserve.api.media_fetch import MediaFetcher
from voxserve.audio.reference import read_reference
from voxserve.errors import InvalidRequestError, UnavailableError
from voxserve.requests import ReferenceClip

SPEC = host().spec


def library() -> Clips:
    return Clips(ClipSource(MediaFetcher(()), None))


def test_equal_files_are_decoded_once_even_at_the_same_time() -> None:
    recording = noise(1.2)

    async def ask() -> list[ReferenceClip]:
        kept = library()
        at_once = await asyncio.gather(*(kept.given(recording, SPEC) for _ in range(6)))
        return [*at_once, await kept.given(recording, SPEC)]

    first, *others = asyncio.run(ask())
    assert all(other is first for other in others)
    assert np.array_equal(first.audio, read_reference(recording, 24_000))


def test_equal_sound_in_other_files_has_the_same_key() -> None:
    audio = tone(1.2, 24_000)
    files = [sounding(audio, 24_000), sounding(audio, 24_000, "RF64")]

    async def ask() -> list[str]:
        kept = library()
        return [(await kept.given(file, SPEC)).key for file in files]

    one, other = asyncio.run(ask())
    assert one == other
    assert with_text(ReferenceClip(one, np.zeros(1, np.float32)), "").text is None


def test_the_client_that_leaves_takes_no_one_with_it() -> None:
    async def ask() -> ReferenceClip:
        kept = library()
        leaving = asyncio.create_task(kept.given(noise(1.2), SPEC))
        staying = asyncio.create_task(kept.given(noise(1.2), SPEC))
        while not kept.decoding:
            await asyncio.sleep(0)
        leaving.cancel()
        clip = await staying
        assert kept.decoding == 0
        return clip

    assert len(asyncio.run(ask()).audio) == int(1.2 * 24_000)


def test_the_cache_holds_so_many_bytes_and_no_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "CACHE_BYTES", 2 * 4 * 24_000 + 100)
    files = {content_key(file): file for file in (tone_file(hz) for hz in (300, 400, 500))}
    loaded: list[str] = []

    async def ask() -> None:
        kept = library()

        async def read(key: str) -> None:
            def load() -> bytes:
                loaded.append(key)
                return files.get(key, b"words")

            await kept.decoded(key, load, SPEC)

        one, two, three = files
        for key in (one, two, one, three, one, two):
            await read(key)
        assert loaded == [one, two, three, two]
        for _ in range(2):
            with pytest.raises(InvalidRequestError):
                await read("words")
        assert loaded[-2:] == ["words", "words"]

    asyncio.run(ask())


def test_too_many_at_once_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "MAX_WAITING", 1)

    async def ask() -> None:
        kept = library()
        first = asyncio.create_task(kept.given(noise(1.2), SPEC))
        while not kept.decoding:
            await asyncio.sleep(0)
        with pytest.raises(UnavailableError) as refused:
            await kept.given(noise(1.3), SPEC)
        assert refused.value.retry_after_s
        await first

    asyncio.run(ask())


def test_the_model_may_take_less_than_the_api() -> None:
    assert clips.longest_s(SPEC) == 30
    assert clips.longest_s(replace(SPEC, encode_seconds=(5, 15))) == 15


def tone_file(hz: float) -> bytes:
    return sounding(tone(1, 24_000, hz=hz), 24_000)
