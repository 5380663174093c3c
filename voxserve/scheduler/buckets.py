"""Which bucket holds a number of rows, tokens, frames or seconds."""


class Buckets:
    """Ascending sizes, and the smallest one that holds a given number."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        if not sizes or list(sizes) != sorted(set(sizes)) or sizes[0] < 1:
            raise ValueError(f"buckets are {sizes}, expected ascending positive numbers")
        self.largest = sizes[-1]
        self._holding = [min(s for s in sizes if s >= n) for n in range(self.largest + 1)]
        self._within = [
            max((s for s in sizes if s <= n), default=0) for n in range(self.largest + 1)
        ]

    def holding(self, number: int) -> int:
        """The smallest bucket >= `number`, which is at most the largest one."""
        return self._holding[number]

    def within(self, number: int) -> int:
        """The largest bucket <= `number`, 0 if there is none; `number` is at most the largest."""
        return self._within[number]
