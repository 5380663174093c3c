"""Requests that wait: their order, their clips, and the memory they need to start."""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from math import ceil

from voxserve.scheduler.buckets import Buckets
from voxserve.scheduler.launches import NO_CLIP, Arrival, Refusal
from voxserve.scheduler.lifecycle import Event, Phase, Request
from voxserve.scheduler.policy import Policy, Shape


@dataclass(slots=True)
class Clip:
    """A clip from the first request that names it to the release of the last.

    waiting: requests that need its features, which are still to come. placed: it has a row and its
    pages. encoded: its features are there.
    """

    seconds: float
    pages: tuple[int, ...]
    holders: int = 0
    waiting: list[Request] = field(default_factory=list)
    placed: bool = False
    encoded: bool = False


class Waiting:
    """The queue before the prefill.

    Under the admission policy `deadline` the nearest first-chunk deadline goes first, requests
    without one behind them in order of arrival; under `prefill-first` all go in order of arrival.
    Nobody overtakes a request for which slots or pages are short. Counts free slots and pages.

    A clip takes its room when its encoder is launched and keeps it until nobody holds it; what the
    engine keeps of clips beyond that is as good as free. So no clip that only waits bars another.
    """

    def __init__(self, shape: Shape, policy: Policy) -> None:
        self._by_deadline = policy.admission == "deadline"
        self._tokens = Buckets(shape.prefill_tokens)
        self._rows = min(policy.prefill_rows, shape.prefill_rows[-1])
        self._encode_seconds = Buckets(shape.encode_seconds) if shape.encode_seconds else None
        self._pages_total = shape.pages
        self._queue: list[tuple[float, int, Request]] = []
        self._clips: dict[int, Clip] = {}
        self._clips_to_place = 0
        self._clips_total = self._clip_rows_free = shape.clips
        self._clip_pages_total = self._clip_pages_free = shape.clip_pages
        self._slots = list(range(shape.slots - 1, -1, -1))
        self.pages_free = shape.pages

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def slots_free(self) -> int:
        return len(self._slots)

    def misfit(self, arrival: Arrival) -> str | None:
        """Why the request could never run here, in words, or None."""
        for pool, (needed, total) in enumerate(zip(arrival.pages, self._pages_total, strict=True)):
            if needed > total:
                return f"request needs {needed} pages of pool {pool}, there are {total}"
        if arrival.prompt_rows > self._tokens.largest:
            return f"prompt has {arrival.prompt_rows} rows, at most {self._tokens.largest}"
        longest = self._encode_seconds.largest if self._encode_seconds else 0
        if arrival.clip_s > longest:
            return f"clip has {arrival.clip_s:g} seconds, at most {longest}"
        if arrival.clip_s > 0:
            if not self._clips_total:
                return "there is no room for reference clips"
            clip_pages = zip(arrival.clip_pages, self._clip_pages_total, strict=True)
            for pool, (needed, total) in enumerate(clip_pages):
                if needed > total:
                    return f"clip needs {needed} pages of pool {pool}, there are {total}"
        return None

    def add(self, request: Request) -> None:
        """Queue a request whose phase is QUEUED; it turns to ENCODING while its clip is missing."""
        insort(self._queue, self._entry(request))
        arrival = request.arrival
        if arrival.clip == NO_CLIP:
            return
        clip = self._clips.get(arrival.clip)
        if clip is None:
            clip = self._clips[arrival.clip] = Clip(arrival.clip_s, arrival.clip_pages)
            clip.encoded = not arrival.clip_s
            self._clips_to_place += 1
            if clip.encoded:
                self._place(clip)
        clip.holders += 1
        if not clip.encoded:
            clip.waiting.append(request)
            request.phase = Phase.ENCODING

    def remove(self, request: Request) -> None:
        """Take a request out of the queue; it holds its clip until `give_back`."""
        entry = self._entry(request)
        del self._queue[bisect_left(self._queue, entry)]
        clip = self._clips.get(request.arrival.clip)
        if clip is not None and request in clip.waiting:
            clip.waiting.remove(request)

    def next_clip(self) -> tuple[Request, int] | None:
        """The first request whose clip must be encoded before anybody can be prefilled.

        While there is no room for it, no other clip goes before it.
        """
        if not self._clips_to_place:
            return None
        for _, _, request in self._queue:
            if request.phase == Phase.ENCODING:
                clip = self._clips[request.arrival.clip]
                if not clip.placed:
                    if self._lacks_room([clip]):
                        return None
                    assert self._encode_seconds is not None
                    return request, self._encode_seconds.holding(ceil(clip.seconds))
            elif self._fits([request]):
                return None
        return None

    def launch_clip(self, number: int) -> None:
        self._place(self._clips[number])

    def clip_done(self, number: int, failed: bool) -> list[Request]:
        """The features are there, or will never be. Returns the requests that waited for them."""
        clip = self._clips[number]
        waiting, clip.waiting = clip.waiting, []
        clip.encoded = not failed
        if not failed:
            for request in waiting:
                request.advance(Event.ENCODED)
        return waiting

    def next_prefill(self) -> tuple[list[Request], int]:
        """The requests to prefill together, by rank, and their token bucket; none: ([], 0)."""
        batch: list[Request] = []
        tokens = 0
        for _, _, request in self._queue:
            if request.phase != Phase.QUEUED or request.allowed < 1:
                continue
            if not self._fits([*batch, request]):
                break
            bucket = self._tokens.holding(request.arrival.prompt_rows)
            if batch and bucket > tokens:
                continue
            tokens = tokens or bucket
            batch.append(request)
            if len(batch) == self._rows:
                break
        return batch, tokens

    def take(self, request: Request) -> None:
        """Move a request out of the queue into a slot, with the pages it reserves."""
        self.remove(request)
        request.slot = self._slots.pop()
        pages = zip(self.pages_free, request.arrival.pages, strict=True)
        self.pages_free = tuple(free - needed for free, needed in pages)

    def give_back(self, request: Request) -> None:
        """What a request had is free again: slot and pages, and its clip's room with the last."""
        self._let_clip_go(request.arrival.clip)
        if request.slot < 0:
            return
        self._slots.append(request.slot)
        pages = zip(self.pages_free, request.arrival.pages, strict=True)
        self.pages_free = tuple(free + needed for free, needed in pages)

    def ahead_of(self, deadline_s: float, order: int) -> list[Request]:
        """The waiting requests that would go before one with this deadline."""
        key = deadline_s if self._by_deadline else 0.0
        return [entry[2] for entry in self._queue if (entry[0], entry[1]) < (key, order)]

    def lacking(self, requests: list[Request], arrival: Arrival) -> bool:
        """Whether `arrival` must wait for a release when all of `requests` go before it."""
        if len(requests) >= len(self._slots):
            return True
        for pool, free in enumerate(self.pages_free):
            taken = sum(request.arrival.pages[pool] for request in requests)
            if taken + arrival.pages[pool] > free:
                return True
        return self._lacks_clip_room(requests, arrival)

    def _lacks_clip_room(self, requests: list[Request], arrival: Arrival) -> bool:
        """Whether the clip of `arrival` finds no room behind those of `requests`."""
        clip = self._clips.get(arrival.clip)
        if clip is None and arrival.clip_s > 0:
            clip = Clip(arrival.clip_s, arrival.clip_pages)
        if clip is None or clip.placed:
            return False
        numbers = {request.arrival.clip for request in requests} - {arrival.clip, NO_CLIP}
        others = [other for n in numbers if not (other := self._clips[n]).placed]
        return self._lacks_room([*others, clip])

    def _lacks_room(self, clips: list[Clip]) -> bool:
        """Whether there is no room for all of these clips, which have none yet."""
        if len(clips) > self._clip_rows_free:
            return True
        needs = (sum(needed) for needed in zip(*(clip.pages for clip in clips), strict=True))
        return any(n > free for n, free in zip(needs, self._clip_pages_free, strict=True))

    def _place(self, clip: Clip) -> None:
        clip.placed = True
        self._clips_to_place -= 1
        self._change_room(clip, -1)

    def _let_clip_go(self, number: int) -> None:
        clip = self._clips.get(number)
        if clip is None:
            return
        clip.holders -= 1
        if clip.holders:
            return
        del self._clips[number]
        if clip.placed:
            self._change_room(clip, 1)
        else:
            self._clips_to_place -= 1

    def _change_room(self, clip: Clip, sign: int) -> None:
        """A clip takes (-1) or gives back (1) its row and its pages."""
        self._clip_rows_free += sign
        pages = zip(self._clip_pages_free, clip.pages, strict=True)
        self._clip_pages_free = tuple(free + sign * count for free, count in pages)

    def _fits(self, requests: list[Request]) -> bool:
        *before, last = requests
        return not self.lacking(before, last.arrival)

    def _entry(self, request: Request) -> tuple[float, int, Request]:
        return (request.deadline_s if self._by_deadline else 0.0, request.order, request)


def refusal(code: str, message: str, retry_after_s: float) -> Refusal:
    """A refusal whose wait is within what makes sense to tell a client."""
    return Refusal(code, message, min(max(retry_after_s, 0.05), 60.0))
