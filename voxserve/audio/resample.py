"""Changes the sample rate of a stream as it passes, without ever starting anew."""

import numpy as np
import soxr  # type: ignore[import-untyped]
from numpy.typing import NDArray

Int16Array = NDArray[np.int16]

_FULL_SCALE = 32_767


class Resampler:
    """One stream from one rate to another. The filter looks ahead: feed may give nothing yet."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        self._from_hz = from_hz
        self._to_hz = to_hz
        self._taken = 0
        self._given = 0
        self._stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32", quality="HQ")

    def feed(self, samples: Int16Array) -> Int16Array:
        """samples: [n] int16. Returns [m] int16, what is settled by now."""
        return self._pass(samples, last=False)

    def finish(self) -> Int16Array:
        """The rest, so that the whole stream has n * to_hz / from_hz samples, rounded."""
        rest = self._pass(np.zeros(0, np.int16), last=True)
        missing = round(self._taken * self._to_hz / self._from_hz) - self._given
        # soxr rounds up, by its own account of the rates: at most one sample of difference.
        return np.pad(rest, (0, missing)) if missing > 0 else rest[: len(rest) + missing]

    def _pass(self, samples: Int16Array, *, last: bool) -> Int16Array:
        self._taken += len(samples)
        # Dither, which soxr adds to integers, would differ from one run to the next.
        made = self._stream.resample_chunk(samples.astype(np.float32), last=last)
        limited: Int16Array = np.clip(np.rint(made), -_FULL_SCALE, _FULL_SCALE).astype(np.int16)
        self._given += len(limited)
        return limited
