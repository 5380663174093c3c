"""What the engine keeps of every running request, as arrays indexed by slot."""

import numpy as np

from voxserve.plugin import StepLogic
from voxserve.requests import Int32Array, Prompt
from voxserve.scheduler.launches import Int8Array, Launch

FREE = -1


class Slots:
    """Struct of arrays over `slots` running requests and one spare row.

    A slot is live from its prefill's launch until its request ends, fails or is cancelled; codes of
    rows that are not live any more were computed for nothing and are dropped here.
    """

    def __init__(
        self, slots: int, max_steps: int, pad_row: tuple[int, ...], logic: StepLogic
    ) -> None:
        self.request = np.full(slots + 1, FREE, np.int64)
        self.live = np.zeros(slots + 1, np.bool_)
        self.frames = np.zeros(slots + 1, np.int32)
        self.steps = np.zeros(slots + 1, np.int32)
        self.ended = np.zeros(slots + 1, np.int8)
        self._logic = logic
        self._pad_row = np.array(pad_row, np.int64)
        self._inject = np.empty((slots + 1, max_steps, len(pad_row)), np.int64)
        self._inject[:] = self._pad_row

    def admit(self, slot: int, request: int, prompt: Prompt) -> None:
        """Give the slot to a request; raises what the model's step logic raises."""
        self.request[slot] = request
        self.frames[slot] = self.steps[slot] = self.ended[slot] = 0
        self._inject[slot, :] = self._pad_row
        self.live[slot] = True
        self._logic.admit(slot, prompt)

    def inject(self, slot: int, first: int, rows: Int32Array) -> None:
        """Write text rows `first`, `first` + 1, …; rows past the last step have no reader."""
        room = self._inject.shape[1] - first
        rows = rows[: max(room, 0)]
        self._inject[slot, first : first + len(rows)] = rows

    def decode_rows(self, launch: Launch) -> np.ndarray:
        """[n, inject_columns] int64: the text row that each row's step consumes."""
        assert launch.steps is not None
        rows: np.ndarray = self._inject[launch.slots, launch.steps - 1]
        return rows

    def accept(self, launch: Launch, codes: Int32Array) -> tuple[Int32Array, Int8Array]:
        """Read one step's codes [n, K]. Returns frames [n] and ended [n]; dropped rows get 0.

        Raises what the model's step logic raises.
        """
        assert launch.steps is not None
        slots, steps = launch.slots, launch.steps
        live = self.live[slots]
        whole = np.count_nonzero(live) == len(live)
        if not whole:
            slots, steps, codes = slots[live], steps[live], codes[live]
        accepted = self._logic.accept(slots.astype(np.int32), steps, codes)
        rows = slots.astype(np.intp, copy=False)
        self.frames[rows] = accepted.frames
        self.steps[rows] = steps + 1
        if np.count_nonzero(accepted.ended):
            self.ended[rows] = accepted.ended
            self.live[rows] = accepted.ended == 0
        if whole:
            return accepted.frames, accepted.ended
        frames, ended = np.zeros(len(live), np.int32), np.zeros(len(live), np.int8)
        frames[live], ended[live] = accepted.frames, accepted.ended
        return frames, ended

    def free(self, slot: int) -> None:
        self.request[slot] = FREE
        self.live[slot] = False
