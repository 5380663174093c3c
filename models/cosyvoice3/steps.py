"""Which steps are heard, and when a request is over.

The model says near-silence as one of eleven codes. Of a run of these only the first few are heard;
the language model still reads them all. This keeps pauses short, and bounds what a request that
never ends sounds like. A step is a frame unless it is dropped so.
"""

from collections.abc import Callable

import numpy as np

from voxserve.plugin import Accepted, EndReason
from voxserve.requests import Int32Array, Prompt

SILENT = (1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323)
"""Codes of silence and breath, from the reference."""
HEARD_SILENT = 5
"""Of a run of silent codes so many are heard, 0.2 s."""
GUARD_SILENT = 125
"""Silent codes in a row after which a request is taken to have run away: 5 s."""

Samples = Callable[[int, int, bool], int]
"""(first frame, frames, last) -> samples of a chunk."""


class SilenceSteps:
    """`StepLogic`. codes: ids from here on end the speech. most: steps a request can have."""

    def __init__(self, slots: int, codes: int, most: int, samples: Samples) -> None:
        self._codes = codes
        self._samples = samples
        self._is_silent = np.zeros(codes, np.bool_)
        self._is_silent[[code for code in SILENT if code < codes]] = True
        self._heard = np.zeros((slots + 1, most), np.int32)
        self._frames = np.zeros(slots + 1, np.int32)
        self._run = np.zeros(slots + 1, np.int32)
        self._max_steps = np.zeros(slots + 1, np.int32)
        self._ignore_eos = np.zeros(slots + 1, np.bool_)

    def admit(self, slot: int, prompt: Prompt) -> None:
        self._frames[slot] = self._run[slot] = 0
        self._max_steps[slot] = prompt.max_steps
        self._ignore_eos[slot] = prompt.ignore_eos

    def accept(self, slots: Int32Array, steps: Int32Array, codes: Int32Array) -> Accepted:
        rows = slots.astype(np.intp, copy=False)
        said = codes[:, 0]
        free = ~self._ignore_eos[rows]
        stopped = (said >= self._codes) & free
        silent = self._is_silent[np.minimum(said, self._codes - 1)]
        self._run[rows] = run = (self._run[rows] + 1) * silent
        guard = (run >= GUARD_SILENT) & free
        ended = (steps + 1 >= self._max_steps[rows]) * np.int8(EndReason.LENGTH)
        ended[guard] = EndReason.GUARD
        ended[stopped] = EndReason.STOP
        heard = ~stopped & (run <= HEARD_SILENT)
        frames = self._frames[rows]
        self._heard[rows[heard], frames[heard]] = steps[heard]
        self._frames[rows] = frames = frames + heard
        return Accepted(frames=frames, ended=ended)

    def chunk_steps(self, slot: int, first: int, count: int) -> Int32Array:
        wanted = np.full(count, -1, np.int32)
        start, end = max(first, 0), min(first + count, int(self._frames[slot]))
        if start < end:
            wanted[start - first : end - first] = self._heard[slot, start:end]
        return wanted

    def chunk_samples(self, first: int, frames: int, last: bool) -> int:
        return self._samples(first, frames, last)
