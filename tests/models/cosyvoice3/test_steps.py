from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.cosyvoice3.rig import host, prompt, silence
from voxserve.models.cosyvoice3.steps import GUARD_SILENT, HEARD_SILENT, SILENT, SilenceSteps
from voxserve.plugin import EndReason
from voxserve.requests import Prompt

END = 6562
CODES = st.lists(st.sampled_from([*SILENT[:3], 7, 8, 9]), max_size=60)


def asked(steps: int, *, forced: bool = False) -> Prompt:
    return replace(prompt("Hi.", silence(60), max_frames=steps), ignore_eos=forced)


def feed(logic: SilenceSteps, slot: int, codes: list[int]) -> list[tuple[int, int]]:
    """(frames, ended) after each step."""
    out = []
    for step, code in enumerate(codes):
        accepted = logic.accept(
            np.array([slot], np.int32), np.array([step], np.int32), np.array([[code]], np.int32)
        )
        out.append((int(accepted.frames[0]), int(accepted.ended[0])))
    return out


def kept(codes: list[int]) -> list[int]:
    """Steps that are heard, by the definition."""
    heard, run = [], 0
    for step, code in enumerate(codes):
        run = run + 1 if code in SILENT else 0
        if run <= HEARD_SILENT:
            heard.append(step)
    return heard


@given(CODES)
def test_of_a_silence_only_the_beginning_is_heard(codes: list[int]) -> None:
    logic = host().steps(2)
    logic.admit(1, asked(100))
    frames = [frames for frames, _ in feed(logic, 1, codes)]
    assert frames == [len(kept(codes[: n + 1])) for n in range(len(codes))]
    assert logic.chunk_steps(1, -2, len(codes) + 4).tolist() == (
        [-1, -1] + kept(codes) + [-1] * (len(codes) + 2 - len(kept(codes)))
    )


@given(CODES, CODES)
def test_rows_are_read_together_as_alone(first: list[int], second: list[int]) -> None:
    count = min(len(first), len(second))
    together, alone = host().steps(2), host().steps(2)
    for logic in (together, alone):
        logic.admit(0, asked(50))
        logic.admit(1, asked(7))
    slots = np.array([1, 0], np.int32)
    got = [
        together.accept(slots, np.full(2, step, np.int32), np.array([[a], [b]], np.int32))
        for step, (a, b) in enumerate(zip(first, second, strict=False))
    ]
    for column, (slot, codes) in enumerate(((1, first), (0, second))):
        mine = [(int(one.frames[column]), int(one.ended[column])) for one in got]
        assert mine == feed(alone, slot, codes[:count])


@pytest.mark.parametrize("code", [6561, END, 6760])
def test_any_control_id_ends_the_speech_and_is_no_frame(code: int) -> None:
    logic = host().steps(1)
    logic.admit(0, asked(100))
    assert feed(logic, 0, [7, 8, code]) == [(1, 0), (2, 0), (2, EndReason.STOP)]


def test_the_limit_and_a_silence_without_end_are_told_apart() -> None:
    logic = host().steps(1)
    logic.admit(0, asked(3))
    assert feed(logic, 0, [7, 8, 9])[-1] == (3, EndReason.LENGTH)
    logic.admit(0, asked(900))
    ends = feed(logic, 0, [7] + [1] * GUARD_SILENT)
    assert ends[-1] == (1 + HEARD_SILENT, EndReason.GUARD) and ends[-2][1] == 0
    logic.admit(0, asked(900, forced=True))
    assert feed(logic, 0, [1] * (GUARD_SILENT + 5))[-1] == (HEARD_SILENT, 0)


def test_a_request_begins_anew() -> None:
    logic = host().steps(1)
    logic.admit(0, asked(100))
    feed(logic, 0, [7, 8, 1, 1, 1, 1])
    logic.admit(0, asked(100))
    assert feed(logic, 0, [1, 1])[-1] == (2, 0)
    assert logic.chunk_steps(0, 0, 3).tolist() == [0, 1, -1]


@given(st.integers(1, 90))
def test_samples_of_all_chunks_are_those_of_all_frames(frames: int) -> None:
    logic, first, total = host().steps(1), 0, 0
    while first < frames:
        size = min(25 if first else 12, frames - first)
        total += logic.chunk_samples(first, size, first + size == frames)
        first += size
    assert total == frames * 960
