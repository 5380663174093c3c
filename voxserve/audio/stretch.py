"""Makes speech faster or slower at the same pitch, as it passes (WSOLA).

Verhelst and Roelands, "An overlap-add technique based on waveform similarity (WSOLA) for high
quality time-scale modification of speech", ICASSP 1993: windows are laid one hop apart, each taken
from where the input, near its due place, looks most like the continuation of the window before.
"""

import numpy as np
from numpy.typing import NDArray

Int16Array = NDArray[np.int16]
Float64Array = NDArray[np.float64]

_HOP_S = 0.012
"""Half a window. Two of them hold two periods of a low voice (85 Hz)."""

_SEARCH_S = 0.007
"""To either side of the due place: together more than one period of such a voice."""


class Stretcher:
    """One stream. speed: input seconds / output seconds.

    What comes out ends at most 31 ms of input, and one hop of output, before what went in.
    The result does not depend on how the input is cut: correlations are sums of products of
    integers, exact in float64 in any order.
    """

    def __init__(self, sample_rate_hz: int, speed: float) -> None:
        self._speed = speed
        self._hop = round(_HOP_S * sample_rate_hz)
        self._search = round(_SEARCH_S * sample_rate_hz)
        self._fade_in = np.sin(np.linspace(0, np.pi / 2, self._hop, endpoint=False)) ** 2
        self._input: Float64Array = np.zeros(0)
        self._start = 0  # of _input in the stream
        self._taken = 0
        self._hops = 0
        self._at = -self._hop  # of the latest window: the stream itself begins unfaded

    def feed(self, samples: Int16Array) -> Int16Array:
        """samples: [n] int16. Returns [m] int16, what is settled by now."""
        self._taken += len(samples)
        self._input = np.concatenate([self._input, samples])
        return self._settled(self._start + len(self._input))

    def finish(self) -> Int16Array:
        """The rest, so that the whole stream has n / speed samples, rounded."""
        total = round(self._taken / self._speed)
        given = self._hops * self._hop
        # As if silence followed, for as long as a window may look.
        silence = 2 * round(self._hop * self._speed) + 2 * (self._hop + self._search)
        self._input = np.concatenate([self._input, np.zeros(silence)])
        rest = self._settled(self._start + len(self._input))
        assert given + len(rest) >= total
        return rest[: total - given]

    def _settled(self, available: int) -> Int16Array:
        """All hops whose windows, and what they stand for, end before `available`."""
        pieces: list[Int16Array] = []
        while True:
            due = round(self._hops * self._hop * self._speed)
            windows = max(self._at + 2 * self._hop, due + self._search + self._hop)
            if max(windows, (self._hops + 1) * self._hop * self._speed) > available:
                break
            pieces.append(self._next(due))
        if not pieces:
            return np.zeros(0, np.int16)
        keep = max(0, min(self._at + self._hop, due - self._search))
        self._input = self._input[max(0, keep - self._start) :]
        self._start = max(self._start, keep)
        return np.concatenate(pieces)

    def _next(self, due: int) -> Int16Array:
        old = self._slice(self._at + self._hop)
        first = max(0, due - self._search)
        if self._hops == 0:
            self._at = 0
        else:
            self._at = first + self._most_alike(first, due + self._search, old, due - first)
        self._hops += 1
        new = self._slice(self._at)
        mixed = old + self._fade_in * (new - old)
        return np.rint(mixed).astype(np.int16)

    def _slice(self, at: int) -> Float64Array:
        return self._input[at - self._start : at - self._start + self._hop]

    def _most_alike(self, first: int, last: int, wanted: Float64Array, default: int) -> int:
        """Where in first..last the input is most like `wanted`, counted from `first`."""
        area = self._input[first - self._start : last + self._hop - self._start]
        products = np.correlate(area, wanted, "valid")
        power = np.concatenate([[0.0], np.cumsum(area * area)])
        energy = power[self._hop :] - power[: -self._hop]
        likeness = products / np.sqrt(energy + 1.0)
        best = int(np.argmax(likeness))
        return best if likeness[best] > 0 else default
