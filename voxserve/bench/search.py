"""Looking for a capacity with few windows: from a guess outwards, then by halves."""

import math
from collections.abc import Iterator

GROW = 1.5
"""From a rate that was met easily, or missed badly, to the next."""
NEAR_GROW = 1.15
EASY = 0.99


class Search:
    """Rates to test, one after the other; call `answer` with what came out before the next.

    low, high: what is taken for granted: met and missed without a test. near: where to begin when
    neither is known. precision: the search ends when the bracket is narrower than this share of the
    rate. goal: the attainment that is looked for.
    """

    def __init__(
        self,
        *,
        near: float,
        tests: int,
        goal: float,
        precision: float,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        self._low, self._high = low, high
        self._tests, self._goal, self._precision = tests, goal, precision
        self._next = rounded(near if low is None or high is None else math.sqrt(low * high))

    def __iter__(self) -> Iterator[float]:
        return self

    def __next__(self) -> float:
        if self._tests == 0 or self._narrow() or self._next in (self._low, self._high):
            raise StopIteration
        self._tests -= 1
        return self._next

    def answer(self, attainment: float, goodput: float) -> None:
        """What the last rate came to."""
        rate = self._next
        if attainment >= self._goal:
            self._low = rate
            up = rate * (GROW if attainment >= EASY else NEAR_GROW)
        else:
            self._high = rate
            # A server that refuses what it cannot do shows its capacity in what it still did.
            down = min(max(goodput, rate / GROW), rate / NEAR_GROW)
        if self._low is not None and self._high is not None:
            self._next = rounded(math.sqrt(self._low * self._high))
        else:
            self._next = rounded(up if self._high is None else down)

    def _narrow(self) -> bool:
        if self._low is None or self._high is None:
            return False
        return self._high - self._low < self._precision * self._next


def rounded(rate: float) -> float:
    """To three digits."""
    return float(f"{rate:.3g}")
