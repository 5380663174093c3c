"""Step logic of the common kind of model: one frame a step, and one code that ends the speech."""

import numpy as np
from numpy.typing import NDArray

from voxserve.plugin import Accepted, EndReason
from voxserve.requests import Int32Array, Prompt

REPEAT_GUARD_FRAMES = 48
"""Identical steps in a row after which a request is taken to have run away."""
AUTO_LENGTH = "auto_length"
"""Name of the sampling column that `GuardedSteps` wants."""
LEAST_DIFFERENT = 4
"""Different codes of the first codebook in a window; no more than these are taken for silence."""


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
        self._last = np.full((slots + 1, 1), -1, np.int32)

    def admit(self, slot: int, prompt: Prompt) -> None:
        self._max_steps[slot] = prompt.max_steps
        self._frames[slot] = 0
        self._frames_cap[slot] = prompt.max_steps
        self._stopped[slot] = False
        self._ignore_eos[slot] = prompt.ignore_eos
        self._repeats[slot] = 0
        self._last[slot] = -1

    def accept(self, slots: Int32Array, steps: Int32Array, codes: Int32Array) -> Accepted:
        rows = slots.astype(np.intp, copy=False)  # numpy gathers several times as fast with these
        behind = steps + np.int32(1 - self._lag)
        ended = (steps + 1 >= self._max_steps[rows]) * np.int8(EndReason.LENGTH)
        repeated = self._repeated(rows, codes)
        ends_here = codes[:, 0] == self._eos
        stopped = self._stopped[rows]
        if np.count_nonzero(ends_here | repeated | stopped):
            # Few steps come here, so that all others cost as little as they can.
            ignore = self._ignore_eos[rows]
            ends_here &= ~ignore & ~stopped
            stopped |= ends_here
            self._stopped[rows] = stopped
            guard = repeated & ~ignore & ~stopped
            cap = np.where(ends_here, steps, self._frames_cap[rows])
            self._frames_cap[rows] = cap = np.where(guard, steps - self._lag, cap)
            ended[guard] = EndReason.GUARD
            ended[stopped & (behind >= cap)] = EndReason.STOP
        frames = np.maximum(np.minimum(behind, self._frames_cap[rows]), 0)
        self._frames[rows] = frames
        return Accepted(frames=frames, ended=ended)

    def chunk_steps(self, slot: int, first: int, count: int) -> Int32Array:
        wanted = np.arange(first, first + count, dtype=np.int32)
        frames = self._frames[slot]
        if first < 0 or first + count > frames:
            wanted[(wanted < 0) | (wanted >= frames)] = -1
        return wanted

    def chunk_samples(self, first: int, frames: int, last: bool) -> int:
        return frames * self._samples_per_frame

    def _repeated(self, rows: NDArray[np.intp], codes: Int32Array) -> NDArray[np.bool_]:
        """[B] bool: the row is the last of `repeat_guard` + 1 equal ones."""
        if self._last.shape[1] != codes.shape[1]:
            self._last = np.full((len(self._repeats), codes.shape[1]), -1, np.int32)
        same = codes[:, 0] == self._last[rows, 0]
        if np.count_nonzero(same):
            same &= (codes == self._last[rows]).all(axis=1)
        self._last[rows] = codes
        self._repeats[rows] = repeats = (self._repeats[rows] + 1) * same
        return np.asarray(repeats >= self._repeat_guard)


class GuardedSteps(EosSteps):
    """`EosSteps` for models that now and then never say their end code and go on near-silently.

    Two more things end a request with GUARD: a length that followed from its text, where the
    sampling column number `auto` is 1, and a window of `window` steps in which the first codebook,
    the one that carries the words, takes hardly any different values, as it does in silence, room
    tone and short loops. The latter is looked at every `check_every` steps.
    """

    def __init__(
        self,
        slots: int,
        eos: int,
        samples_per_frame: int,
        auto: int,
        *,
        window: int,
        check_every: int,
        lag: int = 0,
        repeat_guard: int = REPEAT_GUARD_FRAMES,
    ) -> None:
        super().__init__(slots, eos, samples_per_frame, lag=lag, repeat_guard=repeat_guard)
        self._auto_column = auto
        self._check_every = check_every
        self._auto = np.zeros(slots + 1, np.bool_)
        self._guarded = np.zeros(slots + 1, np.bool_)
        self._recent = np.zeros((slots + 1, window), np.int16)

    def admit(self, slot: int, prompt: Prompt) -> None:
        super().admit(slot, prompt)
        self._auto[slot] = prompt.sampling[self._auto_column] > 0
        self._guarded[slot] = not prompt.ignore_eos

    def accept(self, slots: Int32Array, steps: Int32Array, codes: Int32Array) -> Accepted:
        accepted = super().accept(slots, steps, codes)
        window = self._recent.shape[1]
        self._recent[slots, steps % window] = codes[:, 0]
        ended = accepted.ended
        over_cap = (ended == EndReason.LENGTH) & self._auto[slots]
        dull = (ended == EndReason.NONE) & self._guarded[slots]
        dull &= (steps >= window) & (steps % self._check_every == 0)
        for row in np.flatnonzero(dull):
            dull[row] = len(np.unique(self._recent[slots[row]])) <= LEAST_DIFFERENT
        ended = np.where(over_cap | dull, np.int8(EndReason.GUARD), ended)
        return Accepted(frames=accepted.frames, ended=ended)
