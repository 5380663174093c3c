"""Which bucket holds a number of rows, tokens, frames or seconds."""

from bisect import bisect_left


class Buckets:
    """Ascending sizes, and the smallest one that holds a given number."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        if not sizes or list(sizes) != sorted(set(sizes)) or sizes[0] < 1:
            raise ValueError(f"buckets are {sizes}, expected ascending positive numbers")
        self.sizes = sizes
        self.largest = sizes[-1]

    def holding(self, number: float) -> int:
        """The smallest bucket >= `number`, which is at most the largest one."""
        return self.sizes[bisect_left(self.sizes, number)]
