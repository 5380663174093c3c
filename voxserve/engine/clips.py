"""Rows of the feature pool: one per reference clip, found again by the clip's content."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from voxserve.engine.pages import Pages


@dataclass(slots=True)
class Clip:
    """What a clip holds: its row, and pages in order by pool."""

    row: int
    pages: dict[str, list[int]]
    holders: int = 0
    encoded: bool = False


class ClipRows:
    """Which feature-pool row, and which pages, hold which clip.

    A clip is held by every request that names it, from its submission to its release; its pages
    are at the front of all their page tables. Clips that nobody holds stay until the room is
    needed; the one unused for longest goes first.
    pages: by pool, the pages that clips share. They are not those that requests reserve, so that
    no clip can take what an admitted request was promised.
    """

    def __init__(self, rows: int, pages: Mapping[str, Pages]) -> None:
        self._free = list(range(rows - 1, -1, -1))
        self._pages = pages
        self._clips: OrderedDict[str, Clip] = OrderedDict()

    def hold(self, key: str, needs: Mapping[str, int]) -> Clip | None:
        """The clip, held once more; None when the room is in use by others.

        needs: pages that it takes of each pool when it is new here.
        """
        clip = self._clips.get(key)
        if clip is None:
            if not self._make_room(needs):
                return None
            pages = {pool: self._pages[pool].take(count) for pool, count in needs.items()}
            clip = self._clips[key] = Clip(self._free.pop(), pages)
        self._clips.move_to_end(key)
        clip.holders += 1
        return clip

    def encoded(self, key: str) -> bool:
        """Whether the row and the pages already have the clip's features."""
        return self._clips[key].encoded

    def mark_encoded(self, key: str) -> None:
        self._clips[key].encoded = True

    def let_go(self, key: str) -> None:
        """One holder less. A clip that was never encoded is forgotten with its last holder."""
        clip = self._clips[key]
        assert clip.holders > 0, f"clip {key} was let go twice"
        clip.holders -= 1
        if not clip.holders and not clip.encoded:
            self._drop(key)

    def _make_room(self, needs: Mapping[str, int]) -> bool:
        """Forget unused clips, the longest unused first, until a row and the pages are free."""
        while not self._free or any(self._pages[pool].free < n for pool, n in needs.items()):
            unused = next((key for key, clip in self._clips.items() if not clip.holders), None)
            if unused is None:
                return False
            self._drop(unused)
        return True

    def _drop(self, key: str) -> None:
        clip = self._clips.pop(key)
        self._free.append(clip.row)
        for pool, pages in clip.pages.items():
            self._pages[pool].give(pages)
