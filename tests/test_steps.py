from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxserve.plugin import Accepted, EndReason
from voxserve.requests import Int32Array, Prompt
from voxserve.steps import EosSteps

EOS = 99
CODEBOOKS = 4


def _prompt(max_steps: int = 1000, ignore_eos: bool = False) -> Prompt:
    return Prompt(
        rows=np.zeros((3, 1), np.int32),
        inject=np.zeros((0, 1), np.int32),
        text_open=False,
        max_steps=max_steps,
        sampling=np.zeros(5, np.float32),
        seed=0,
        input_tokens=3,
        ignore_eos=ignore_eos,
    )


def _logic(lag: int = 0, repeat_guard: int = 8) -> EosSteps:
    return EosSteps(slots=8, eos=EOS, samples_per_frame=10, lag=lag, repeat_guard=repeat_guard)


def _codes(first: int, step: int) -> Int32Array:
    """[1, K], different at every step."""
    return np.array([[first, step % 50, step // 50, 0]], np.int32)


def _accept(logic: EosSteps, slot: int, step: int, first: int = 1) -> tuple[int, EndReason]:
    result = logic.accept(
        np.array([slot], np.int32), np.array([step], np.int32), _codes(first, step)
    )
    return int(result.frames[0]), EndReason(result.ended[0])


def test_every_step_is_a_frame_until_the_end_code() -> None:
    logic = _logic()
    logic.admit(0, _prompt())
    assert [_accept(logic, 0, step) for step in range(3)] == [
        (1, EndReason.NONE),
        (2, EndReason.NONE),
        (3, EndReason.NONE),
    ]
    assert _accept(logic, 0, 3, first=EOS) == (3, EndReason.STOP)


def test_an_end_code_at_once_leaves_no_frame() -> None:
    logic = _logic()
    logic.admit(0, _prompt())
    assert _accept(logic, 0, 0, first=EOS) == (0, EndReason.STOP)


def test_the_cap_ends_with_its_own_reason_and_keeps_the_last_frame() -> None:
    logic = _logic()
    logic.admit(0, _prompt(max_steps=2))
    assert _accept(logic, 0, 0) == (1, EndReason.NONE)
    assert _accept(logic, 0, 1) == (2, EndReason.LENGTH)


def test_an_end_code_at_the_cap_is_a_stop() -> None:
    logic = _logic()
    logic.admit(0, _prompt(max_steps=2))
    _accept(logic, 0, 0)
    assert _accept(logic, 0, 1, first=EOS) == (1, EndReason.STOP)


def test_a_forced_length_ignores_end_codes_and_repeats() -> None:
    logic = _logic(repeat_guard=2)
    logic.admit(0, _prompt(max_steps=6, ignore_eos=True))
    same = np.full((1, CODEBOOKS), EOS, np.int32)
    slot = np.zeros(1, np.int32)
    ended = [int(logic.accept(slot, np.array([s], np.int32), same).ended[0]) for s in range(6)]
    assert ended == [0, 0, 0, 0, 0, EndReason.LENGTH]


def test_delayed_codebooks_run_on_until_the_last_frame_is_whole() -> None:
    """With the last codebook 3 steps late, frame f is whole at step f + 3."""
    logic = _logic(lag=3)
    logic.admit(0, _prompt())
    assert [_accept(logic, 0, step)[0] for step in range(6)] == [0, 0, 0, 1, 2, 3]
    assert _accept(logic, 0, 6, first=EOS) == (4, EndReason.NONE)
    assert _accept(logic, 0, 7, first=EOS) == (5, EndReason.NONE)
    assert _accept(logic, 0, 8) == (6, EndReason.STOP)


def test_a_run_of_equal_steps_is_cut_before_the_step_that_trips_the_guard() -> None:
    logic = _logic(repeat_guard=4)
    logic.admit(0, _prompt())
    slot, same = np.zeros(1, np.int32), np.full((1, CODEBOOKS), 7, np.int32)
    results = [logic.accept(slot, np.array([s], np.int32), same) for s in range(5)]
    assert [int(r.ended[0]) for r in results] == [0, 0, 0, 0, EndReason.GUARD]
    assert [int(r.frames[0]) for r in results] == [1, 2, 3, 4, 4]


def test_one_different_step_restarts_the_guard() -> None:
    logic = _logic(repeat_guard=3)
    logic.admit(0, _prompt())
    slot, same = np.zeros(1, np.int32), np.full((1, CODEBOOKS), 7, np.int32)
    other = same.copy()
    other[0, -1] = 8  # in the last codebook alone
    for step, codes in enumerate([same, same, same, other, same, same, same]):
        assert logic.accept(slot, np.array([step], np.int32), codes).ended[0] == EndReason.NONE


def test_a_reused_slot_remembers_nothing() -> None:
    logic = _logic(repeat_guard=2)
    logic.admit(0, _prompt(max_steps=2))
    for step in range(2):
        _accept(logic, 0, step)
    logic.admit(0, _prompt())
    assert not (logic.chunk_steps(0, 0, 2) >= 0).any()
    assert [_accept(logic, 0, step) for step in range(3)] == [
        (1, EndReason.NONE),
        (2, EndReason.NONE),
        (3, EndReason.NONE),
    ]


def test_chunk_steps_marks_what_is_outside_the_speech() -> None:
    logic = _logic()
    logic.admit(2, _prompt())
    for step in range(4):
        _accept(logic, 2, step)
    assert logic.chunk_steps(2, -2, 8).tolist() == [-1, -1, 0, 1, 2, 3, -1, -1]
    assert logic.chunk_steps(2, 1, 2).dtype == np.int32


def test_chunk_samples_count_the_frames() -> None:
    assert _logic().chunk_samples(first=5, frames=3, last=True) == 30


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
    lag=st.integers(0, 3),
)
def test_rows_in_any_mix_equal_each_row_alone(lengths: list[int], order: Random, lag: int) -> None:
    """Each row ends by EOS after its own length; batches are random subsets of the open rows."""

    def first(slot: int, step: int) -> int:
        return EOS if step == lengths[slot] else 1

    alone: list[list[tuple[int, EndReason]]] = []
    for slot in range(len(lengths)):
        logic = _logic(lag)
        logic.admit(slot, _prompt(max_steps=25))
        alone.append([])
        for step in range(25):
            alone[-1].append(_accept(logic, slot, step, first(slot, step)))
            if alone[-1][-1][1]:
                break

    logic = _logic(lag)
    mixed: list[list[tuple[int, EndReason]]] = [[] for _ in lengths]
    for slot in range(len(lengths)):
        logic.admit(slot, _prompt(max_steps=25))
    while open_rows := [s for s, seen in enumerate(mixed) if not seen or not seen[-1][1]]:
        batch = [s for s in open_rows if order.random() < 0.6]
        if not batch:
            continue
        steps = [len(mixed[s]) for s in batch]
        codes = np.concatenate([_codes(first(s, t), t) for s, t in zip(batch, steps, strict=True)])
        result = logic.accept(np.array(batch, np.int32), np.array(steps, np.int32), codes)
        _check(result, len(batch))
        for row, slot in enumerate(batch):
            mixed[slot].append((int(result.frames[row]), EndReason(result.ended[row])))
    assert mixed == alone


def _check(result: Accepted, rows: int) -> None:
    assert (result.frames.dtype, result.frames.shape) == (np.dtype(np.int32), (rows,))
    assert (result.ended.dtype, result.ended.shape) == (np.dtype(np.int8), (rows,))


@pytest.mark.parametrize("reason", list(EndReason))
def test_reasons_fit_the_array(reason: EndReason) -> None:
    assert np.int8(reason) == reason
