"""Pages of one pool: which are free."""

from collections.abc import Sequence


class Pages:
    """Hands out page ids, `first` to `first` + `total` - 1.

    The scheduler counts pages and never admits more requests than there are pages for; this class
    knows which they are. What several requests share belongs to their reference clip
    (`voxserve.engine.clips`), so every page has one owner.
    """

    def __init__(self, total: int, first: int = 0) -> None:
        self.total = total
        self._free = list(range(first + total - 1, first - 1, -1))
        self._taken: set[int] = set()

    @property
    def free(self) -> int:
        """Pages that nobody has."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """`count` pages. Raises MemoryError when there are not so many, which the scheduler's
        count rules out."""
        if len(self._free) < count:
            raise MemoryError(f"{count} pages wanted, {len(self._free)} free of {self.total}")
        taken = [self._free.pop() for _ in range(count)]
        self._taken.update(taken)
        return taken

    def give(self, pages: Sequence[int]) -> None:
        """Give pages from `take` back."""
        for page in pages:
            assert page in self._taken, f"page {page} was given back twice"
            self._taken.remove(page)
            self._free.append(page)
