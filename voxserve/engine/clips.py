"""Rows of the feature pool: one per reference clip, found again by the clip's content."""

import itertools
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from voxserve.engine.pages import Pages

NO_ROW = -1


@dataclass(slots=True)
class Clip:
    """What is known of a clip, and what it holds: its row, and pages in order by pool.

    number: names it to the scheduler; no other clip of this engine ever has it. needs: pages that
    it takes of each pool. row: NO_ROW until `ClipRows.place`.
    """

    number: int
    needs: Mapping[str, int]
    row: int = NO_ROW
    pages: dict[str, list[int]] = field(default_factory=dict)
    holders: int = 0
    encoded: bool = False


class ClipRows:
    """Which feature-pool row, and which pages, hold which clip.

    A clip is held by every request that names it, from its submission to its release, but takes
    room only when its encoder starts; its pages are at the front of all their page tables. Clips
    that nobody holds stay until the room is needed; the one unused for longest goes first.
    pages: by pool, the pages that clips share. They are not those that requests reserve, so that
    no clip can take what an admitted request was promised.
    """

    def __init__(self, rows: int, pages: Mapping[str, Pages]) -> None:
        self._free = list(range(rows - 1, -1, -1))
        self._pages = pages
        self._clips: OrderedDict[str, Clip] = OrderedDict()
        self._numbers = itertools.count()

    def hold(self, key: str, needs: Mapping[str, int]) -> Clip:
        """The clip, held once more. needs: of a clip that is new here."""
        clip = self._clips.get(key)
        if clip is None:
            clip = self._clips[key] = Clip(next(self._numbers), needs)
        self._clips.move_to_end(key)
        clip.holders += 1
        return clip

    def place(self, clip: Clip) -> None:
        """Give a held clip its row and pages.

        Raises MemoryError when clips in use take all, which the scheduler's count rules out.
        """
        assert clip.row == NO_ROW, f"clip {clip.number} has row {clip.row}"
        self._make_room(clip.needs)
        clip.row = self._free.pop()
        clip.pages = {pool: self._pages[pool].take(count) for pool, count in clip.needs.items()}

    def displace(self, clip: Clip) -> None:
        """Take back what `place` gave, if it did: the encoder failed."""
        if clip.row == NO_ROW:
            return
        self._free.append(clip.row)
        for pool, pages in clip.pages.items():
            self._pages[pool].give(pages)
        clip.row, clip.pages = NO_ROW, {}

    def encoded(self, key: str) -> bool:
        """Whether a row and pages have the clip's features."""
        return key in self._clips and self._clips[key].encoded

    def let_go(self, key: str) -> None:
        """One holder less. A clip that was never encoded is forgotten with its last holder."""
        clip = self._clips[key]
        assert clip.holders > 0, f"clip {key} was let go twice"
        clip.holders -= 1
        if not clip.holders and not clip.encoded:
            self._drop(key)

    def _make_room(self, needs: Mapping[str, int]) -> None:
        """Forget unused clips, the longest unused first, until a row and the pages are free."""
        while not self._free or any(self._pages[pool].free < n for pool, n in needs.items()):
            unused = next((key for key, clip in self._clips.items() if not clip.holders), None)
            if unused is None:
                raise MemoryError(f"no room for a clip of {dict(needs)} pages beside those in use")
            self._drop(unused)

    def _drop(self, key: str) -> None:
        self.displace(self._clips.pop(key))
