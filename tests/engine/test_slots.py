import numpy as np

from tests.engine.harness import prompt
from voxserve.engine.slots import Slots
from voxserve.plugin import EndReason
from voxserve.scheduler.launches import Lane, Launch, Stage
from voxserve.steps import EosSteps

EOS, PAD = 99, -7


def slots_of(count: int) -> Slots:
    return Slots(count, 16, (PAD,), EosSteps(count, EOS, 10))


def step(slots: list[int], steps: list[int]) -> Launch:
    rows = np.array(slots, np.int32)
    steps_ = np.array(steps, np.int32)
    return Launch(0, Lane.LM, Stage.DECODE, 4, 0, rows, rows, steps=steps_)


def test_each_step_reads_its_own_text_row_then_padding() -> None:
    slots = slots_of(3)
    for slot in (0, 2):
        slots.admit(slot, slot, prompt())
    slots.inject(0, 0, np.array([[10], [11]], np.int32))
    slots.inject(2, 1, np.array([[21]], np.int32))
    rows = [slots.decode_rows(step([0, 2], [n, n]))[:, 0].tolist() for n in (1, 2, 3)]
    assert rows == [[10, PAD], [11, 21], [PAD, PAD]]


def test_text_past_the_last_step_is_ignored_and_a_reused_slot_has_none() -> None:
    slots = slots_of(1)
    slots.admit(0, 1, prompt())
    slots.inject(0, 14, np.array([[1], [2], [3], [4]], np.int32))
    slots.inject(0, 20, np.array([[5]], np.int32))
    assert slots.decode_rows(step([0], [16])).tolist() == [[2]]
    slots.admit(0, 2, prompt())
    assert slots.decode_rows(step([0], [16])).tolist() == [[PAD]]


def test_steps_that_were_in_flight_when_a_row_ended_count_for_nothing() -> None:
    slots = slots_of(3)
    for slot in range(3):
        slots.admit(slot, slot, prompt())
    codes = np.array([[5, 1], [EOS, 1], [6, 1]], np.int32)
    frames, ended = slots.accept(step([0, 1, 2], [0, 0, 0]), codes)
    assert frames.tolist() == [1, 0, 1]
    assert ended.tolist() == [0, EndReason.STOP, 0]
    slots.live[2] = False  # cancelled meanwhile
    frames, ended = slots.accept(step([0, 1, 2], [1, 1, 1]), codes[[0, 0, 0]])
    assert frames.tolist() == [2, 0, 0] and ended.tolist() == [0, 0, 0]
    assert slots.frames.tolist()[:3] == [2, 0, 1]
    assert slots.steps.tolist()[:3] == [2, 1, 1]
    frames, ended = slots.accept(step([1, 2], [2, 2]), codes[[0, 0]])
    assert frames.tolist() == [0, 0] and ended.tolist() == [0, 0]
