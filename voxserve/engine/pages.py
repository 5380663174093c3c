"""Pages of one pool: reference-counted ids, and prefixes that requests share by content."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np


class Pages:
    """Hands out the page ids of one pool.

    The scheduler counts pages and never admits more than there are; this class knows which they
    are. A prefix (the prompt of one reference clip, say) may be kept under a key: its full pages
    are then shared by every request that asks for the key, and stay after the last of them until
    the room is needed. Only full pages may be kept, for nobody writes into those any more; the
    caller copies the partly filled tail.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total - 1, -1, -1))
        self._holders = np.zeros(total, np.int32)
        self._prefixes: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    @property
    def free(self) -> int:
        """Pages that nobody holds, kept prefixes not counted as free."""
        return len(self._free)

    def holders(self, page: int) -> int:
        return int(self._holders[page])

    def take(self, count: int) -> list[int]:
        """`count` unshared pages, held once; forgets unused prefixes, oldest first, for room.

        Raises MemoryError when there are not so many, which the scheduler's count rules out.
        """
        while len(self._free) < count and self._forget_one():
            pass
        if len(self._free) < count:
            raise MemoryError(f"{count} pages wanted, {len(self._free)} free of {self.total}")
        taken = [self._free.pop() for _ in range(count)]
        self._holders[taken] = 1
        return taken

    def give(self, pages: Sequence[int]) -> None:
        """Let go of pages from `take` or `share`; the last holder frees them."""
        for page in pages:
            assert self._holders[page] > 0, f"page {page} was given back twice"
            self._holders[page] -= 1
            if self._holders[page] == 0:
                self._free.append(page)

    def keep(self, key: str, pages: Sequence[int]) -> None:
        """Make full `pages` findable under `key`; does nothing when the key is known."""
        if key not in self._prefixes:
            self._holders[list(pages)] += 1
            self._prefixes[key] = tuple(pages)

    def share(self, key: str) -> tuple[int, ...]:
        """The pages kept under `key`, held once more each; empty when the key is unknown."""
        pages = self._prefixes.get(key, ())
        if pages:
            self._prefixes.move_to_end(key)
            self._holders[list(pages)] += 1
        return pages

    def _forget_one(self) -> bool:
        """Drop the oldest prefix that only this table holds; False when there is none."""
        for key, pages in self._prefixes.items():
            if all(self._holders[page] == 1 for page in pages):
                del self._prefixes[key]
                self.give(pages)
                return True
        return False
