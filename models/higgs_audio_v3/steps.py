"""When a request is over, and which of its delayed codes make frames.

Follows the sampling of sglang-omni: the end code counts once every codebook has begun; where the
first codebook says it, seven more steps complete the frames before it, six of them behind its own.
"""

import numpy as np

from voxserve.plugin import Accepted
from voxserve.requests import Int32Array, Prompt
from voxserve.steps import GuardedSteps

REPEAT_GUARD_FRAMES = 100
SPARE_FRAMES = 28
FRAMES_PER_TOKEN = 24
LEAST_CAP_FRAMES = 96
WINDOW_FRAMES = 200
CHECK_EVERY = 40
NO_CODE = -1
"""Stands in the window where an end code was passed over."""


def frame_cap(tokens: int) -> int:
    """Most frames that a text of so many tokens may take: about three times a calm reading."""
    return max(LEAST_CAP_FRAMES, SPARE_FRAMES + FRAMES_PER_TOKEN * tokens)


class DelayedSteps(GuardedSteps):
    """`StepLogic` of Higgs Audio v3. codebooks, sounds: K, and how many codes of each are sounds.

    auto: the column of `Prompt.sampling` named AUTO_LENGTH. The published model sometimes goes on
    near-silently.
    """

    def __init__(
        self, slots: int, codebooks: int, sounds: int, samples_per_frame: int, auto: int
    ) -> None:
        super().__init__(
            slots,
            sounds + 1,
            samples_per_frame,
            auto,
            window=WINDOW_FRAMES,
            check_every=CHECK_EVERY,
            lag=codebooks - 1,
            repeat_guard=REPEAT_GUARD_FRAMES,
        )
        self._codebooks = codebooks
        self._sounds = sounds
        self._spoilt = np.zeros(slots + 1, np.bool_)

    def admit(self, slot: int, prompt: Prompt) -> None:
        super().admit(slot, prompt)
        self._spoilt[slot] = False

    def accept(self, slots: Int32Array, steps: Int32Array, codes: Int32Array) -> Accepted:
        early = (steps < self._codebooks) & (codes[:, 0] > self._sounds)
        heard = codes
        if np.count_nonzero(early):
            heard = codes.copy()
            heard[early, 0] = NO_CODE
        accepted = super().accept(slots, steps, heard)
        stopped = np.flatnonzero(self._stopped[slots])
        if not len(stopped):
            return accepted
        frames = self._without_spoilt(slots, steps, codes, stopped, accepted)
        return Accepted(frames=frames, ended=accepted.ended)

    def _without_spoilt(
        self,
        slots: Int32Array,
        steps: Int32Array,
        codes: Int32Array,
        stopped: np.ndarray,
        accepted: Accepted,
    ) -> Int32Array:
        """Leave out the last frame where one of its codes is no sound.

        In the layout that the model was trained on, the frame before the end is whole. Where a
        codebook ended a step too soon, the codec would get code 0 in its place: a click at the end.
        """
        rows = slots[stopped]
        place = steps[stopped] + 1 - self._frames_cap[rows]
        inside = place < self._codebooks
        code = codes[stopped, np.minimum(place, self._codebooks - 1)]
        before = self._recent[rows, (steps[stopped] - 1) % WINDOW_FRAMES]
        first = (place == 1) & ((before >= self._sounds) | (before == NO_CODE))
        self._spoilt[rows] |= first | (inside & (code >= self._sounds))
        drop = self._spoilt[rows] & (accepted.frames[stopped] == self._frames_cap[rows])
        frames = accepted.frames.copy()
        frames[stopped] -= drop
        self._frames[rows] = frames[stopped]
        return frames
