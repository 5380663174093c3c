"""Rows of the feature pool: one per reference clip, found again by the clip's content."""

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class _Entry:
    row: int
    holders: int = 0
    encoded: bool = False


class ClipRows:
    """Which feature-pool row holds which clip.

    A row is held by every request that names its clip, from its submission to its release. Rows
    that nobody holds stay until the room is needed; the one unused for longest goes first.
    """

    def __init__(self, rows: int) -> None:
        self._free = list(range(rows - 1, -1, -1))
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def hold(self, key: str) -> int | None:
        """The clip's row, held once more; None when every row is in use by others."""
        entry = self._entries.get(key)
        if entry is None:
            row = self._room()
            if row is None:
                return None
            entry = self._entries[key] = _Entry(row)
        self._entries.move_to_end(key)
        entry.holders += 1
        return entry.row

    def encoded(self, key: str) -> bool:
        """Whether the row already has the clip's features."""
        return self._entries[key].encoded

    def mark_encoded(self, key: str) -> None:
        self._entries[key].encoded = True

    def let_go(self, key: str) -> None:
        """One holder less. A clip that was never encoded is forgotten with its last holder."""
        entry = self._entries[key]
        assert entry.holders > 0, f"clip {key} was let go twice"
        entry.holders -= 1
        if not entry.holders and not entry.encoded:
            self._drop(key)

    def _room(self) -> int | None:
        if not self._free:
            unused = next((k for k, entry in self._entries.items() if not entry.holders), None)
            if unused is None:
                return None
            self._drop(unused)
        return self._free.pop()

    def _drop(self, key: str) -> None:
        self._free.append(self._entries.pop(key).row)
