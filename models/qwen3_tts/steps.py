"""When a request is over: the end code, a limit, or one of the guards against running away.

The published models are known never to say their end code in a few of a thousand requests and then
to go on, mostly as near-silence. Three guards end such a request with `EndReason.GUARD`: a cap on
the frames that follows from the text, equal frames in a row (`EosSteps`), and a stretch in which
the first codebook, the one that carries the words, takes hardly any different values, as it does
in silence, room tone and short loops.
"""

import numpy as np

from voxserve.plugin import Accepted, EndReason
from voxserve.requests import Int32Array, Prompt
from voxserve.steps import EosSteps

AUTO_LENGTH = "auto_length"
"""Name of the sampling column that is 1 where the frame cap follows from the text."""

SPARE_FRAMES = 14
FRAMES_PER_TOKEN = 12
LEAST_CAP_FRAMES = 48
WINDOW_FRAMES = 100
LEAST_DIFFERENT = 4
CHECK_EVERY = 20


def frame_cap(tokens: int) -> int:
    """Most frames that a text of so many tokens may take: about three times a calm reading."""
    return max(LEAST_CAP_FRAMES, SPARE_FRAMES + FRAMES_PER_TOKEN * tokens)


class GuardedSteps(EosSteps):
    """`StepLogic` of Qwen3-TTS. auto: the column of `Prompt.sampling` named AUTO_LENGTH."""

    def __init__(self, slots: int, eos: int, samples_per_frame: int, auto: int) -> None:
        super().__init__(slots, eos, samples_per_frame)
        self._auto_column = auto
        self._auto = np.zeros(slots + 1, np.bool_)
        self._guarded = np.zeros(slots + 1, np.bool_)
        self._recent = np.zeros((slots + 1, WINDOW_FRAMES), np.int16)

    def admit(self, slot: int, prompt: Prompt) -> None:
        super().admit(slot, prompt)
        self._auto[slot] = prompt.sampling[self._auto_column] > 0
        self._guarded[slot] = not prompt.ignore_eos

    def accept(self, slots: Int32Array, steps: Int32Array, codes: Int32Array) -> Accepted:
        accepted = super().accept(slots, steps, codes)
        self._recent[slots, steps % WINDOW_FRAMES] = codes[:, 0]
        ended = accepted.ended
        over_cap = (ended == EndReason.LENGTH) & self._auto[slots]
        dull = (ended == EndReason.NONE) & self._guarded[slots]
        dull &= (steps >= WINDOW_FRAMES) & (steps % CHECK_EVERY == 0)
        for row in np.flatnonzero(dull):
            dull[row] = len(np.unique(self._recent[slots[row]])) <= LEAST_DIFFERENT
        ended = np.where(over_cap | dull, np.int8(EndReason.GUARD), ended)
        return Accepted(frames=accepted.frames, ended=ended)
