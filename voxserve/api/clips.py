"""Decoded reference clips, found again by the content of their files."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from voxserve.api.clip_source import ClipSource
from voxserve.audio.reference import read_apart
from voxserve.errors import InvalidRequestError, UnavailableError
from voxserve.plugin import ModelSpec
from voxserve.requests import ReferenceClip

CACHE_BYTES = 128 * 2**20
"""Of decoded audio: 45 clips of 30 s at 24 kHz."""
DECODED_AT_ONCE = 2
MAX_WAITING = 32
LONGEST_S = 30.0


def content_key(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Clips:
    """One a server. Equal files are decoded once while they stay in the cache."""

    def __init__(self, source: ClipSource, decoded_at_once: int = DECODED_AT_ONCE) -> None:
        self.source = source
        self._cache: OrderedDict[tuple[str, int], ReferenceClip] = OrderedDict()
        self._running: dict[tuple[str, int], asyncio.Task[ReferenceClip]] = {}
        self._room = asyncio.Semaphore(decoded_at_once)

    @property
    def decoding(self) -> int:
        """Clips that are being decoded or wait for it."""
        return len(self._running)

    async def given(self, given: str | bytes, spec: ModelSpec) -> ReferenceClip:
        """The clip of a request's `ref_audio`, without its text. Raises InvalidRequestError."""
        data = await self.source.read(given)
        key = await asyncio.to_thread(content_key, data)
        return await self.decoded(key, lambda: data, spec)

    async def decoded(self, key: str, load: Callable[[], bytes], spec: ModelSpec) -> ReferenceClip:
        """The clip of a file. key: `content_key` of what `load` returns; `load` runs in a thread.

        Raises InvalidRequestError; UnavailableError when too many wait for a decoder.
        """
        assert spec.clip_rate_hz is not None
        place = (key, spec.clip_rate_hz)
        if place in self._cache:
            self._cache.move_to_end(place)
            return self._cache[place]
        task = self._running.get(place)
        if task is None:
            if len(self._running) >= MAX_WAITING:
                raise UnavailableError("too many reference clips wait", retry_after_s=1.0)
            task = asyncio.create_task(self._decode(place, load, longest_s(spec)))
            self._running[place] = task
            task.add_done_callback(lambda _: self._running.pop(place))
        # Others may wait for the same clip when this client leaves.
        return await asyncio.shield(task)

    async def _decode(
        self, place: tuple[str, int], load: Callable[[], bytes], longest: float
    ) -> ReferenceClip:
        async with self._room:
            try:
                data = await asyncio.to_thread(load)
            except OSError as error:
                raise InvalidRequestError(
                    "the recording of this voice is gone", param="voice", code="voice_not_found"
                ) from error
            audio = await read_apart(data, place[1], longest)
        key = await asyncio.to_thread(content_key, audio.tobytes())
        clip = self._cache[place] = ReferenceClip(key, audio)
        while sum(kept.audio.nbytes for kept in self._cache.values()) > CACHE_BYTES:
            self._cache.popitem(last=False)
        return clip


def with_text(clip: ReferenceClip, text: str | None) -> ReferenceClip:
    return replace(clip, text=text or None)


def longest_s(spec: ModelSpec) -> float:
    """The longest clip that the API and the model take."""
    return min(LONGEST_S, *map(float, spec.encode_seconds[-1:]))
