"""Step logic of the common kind of model: one frame a step, and one code that ends the speech."""

import numpy as np

from voxserve.plugin import Accepted, EndReason
from voxserve.requests import Int32Array, Prompt

REPEAT_GUARD_FRAMES = 48
"""Identical steps in a row after which a request is taken to have run away."""


class EosSteps:
    """`StepLogic` for models whose code 0 equals `eos` at the end of the speech.

    slots: rows to keep. samples_per_frame: audio samples a frame. lag: steps by which a frame's
    last code follows its first (K - 1 for a delay pattern), so the LM runs that much past the end.
    repeat_guard: identical steps in a row that end a request with GUARD.
    """

    def __init__(
        self,
        slots: int,
        eos: int,
        samples_per_frame: int,
        *,
        lag: int = 0,
        repeat_guard: int = REPEAT_GUARD_FRAMES,
    ) -> None:
        self._eos = eos
        self._samples_per_frame = samples_per_frame
        self._lag = lag
        self._repeat_guard = repeat_guard
        self._max_steps = np.zeros(slots + 1, np.int32)
        self._frames = np.zeros(slots + 1, np.int32)
        self._frames_cap = np.zeros(slots + 1, np.int32)
        self._stopped = np.zeros(slots + 1, np.bool_)
        self._ignore_eos = np.zeros(slots + 1, np.bool_)
        self._repeats = np.zeros(slots + 1, np.int32)
        self._digest = np.zeros(slots + 1, np.int64)
        self._weights = np.zeros(0, np.int64)

    def admit(self, slot: int, prompt: Prompt) -> None:
        self._max_steps[slot] = prompt.max_steps
        self._frames[slot] = 0
        self._frames_cap[slot] = prompt.max_steps
        self._stopped[slot] = False
        self._ignore_eos[slot] = prompt.ignore_eos
        self._repeats[slot] = 0
        self._digest[slot] = -1

    def accept(self, slots: Int32Array, steps: Int32Array, codes: Int32Array) -> Accepted:
        behind = steps + np.int32(1 - self._lag)
        at_limit = steps + 1 >= self._max_steps[slots]
        ended = np.where(at_limit, np.int8(EndReason.LENGTH), np.int8(EndReason.NONE))
        repeated = self._repeated(slots, codes)
        ends_here = codes[:, 0] == self._eos
        stopped = self._stopped[slots]
        if (ends_here | repeated | stopped).any():
            # Few steps come here, so that all others cost as little as they can.
            ignore = self._ignore_eos[slots]
            ends_here &= ~ignore & ~stopped
            stopped |= ends_here
            self._stopped[slots] = stopped
            guard = repeated & ~ignore & ~stopped
            cap = np.where(ends_here, steps, self._frames_cap[slots])
            self._frames_cap[slots] = cap = np.where(guard, steps - self._lag, cap)
            ended[guard] = EndReason.GUARD
            ended[stopped & (behind >= cap)] = EndReason.STOP
        frames = np.maximum(np.minimum(behind, self._frames_cap[slots]), 0)
        self._frames[slots] = frames
        return Accepted(frames=frames, ended=ended)

    def chunk_steps(self, slot: int, first: int, count: int) -> Int32Array:
        wanted = np.arange(first, first + count, dtype=np.int32)
        frames = self._frames[slot]
        if first < 0 or first + count > frames:
            wanted[(wanted < 0) | (wanted >= frames)] = -1
        return wanted

    def chunk_samples(self, first: int, frames: int, last: bool) -> int:
        return frames * self._samples_per_frame

    def _repeated(self, slots: Int32Array, codes: Int32Array) -> np.ndarray:
        """[B] bool: the row is the last of `repeat_guard` + 1 equal ones."""
        if len(self._weights) != codes.shape[1]:
            powers = np.arange(codes.shape[1], dtype=np.int64)
            self._weights = np.power(np.int64(1_000_003), powers)
        digest = codes.astype(np.int64) @ self._weights
        repeats = np.where(digest == self._digest[slots], self._repeats[slots] + 1, 0)
        self._digest[slots] = digest
        self._repeats[slots] = repeats
        return np.asarray(repeats >= self._repeat_guard)
