"""When a request is over, and how many of its frames are whole."""

from dataclasses import replace

import numpy as np
import pytest

from voxserve.models.higgs_audio_v3.limits import SAMPLING
from voxserve.models.higgs_audio_v3.steps import (
    REPEAT_GUARD_FRAMES,
    WINDOW_FRAMES,
    DelayedSteps,
    frame_cap,
)
from voxserve.plugin import EndReason
from voxserve.requests import Prompt

BOOKS, SOUNDS, END = 8, 1024, 1025
PROMPT = Prompt(
    rows=np.zeros((4, 2), np.int32),
    inject=np.zeros((0, 1), np.int32),
    text_open=False,
    max_steps=400,
    sampling=np.zeros(len(SAMPLING), np.float32),
    seed=0,
    input_tokens=2,
)


def logic(prompt: Prompt = PROMPT, slots: int = 3) -> DelayedSteps:
    made = DelayedSteps(slots, BOOKS, SOUNDS, 960, len(SAMPLING) - 1)
    for slot in range(slots):
        made.admit(slot, prompt)
    return made


def said(step: int, **codes: int) -> np.ndarray:
    """A row of sounds [8] that differ from step to step; b0, b1, … put others in their places."""
    row = (np.arange(BOOKS, dtype=np.int32) * 100 + step * 7) % SOUNDS
    for name, code in codes.items():
        row[int(name[1:])] = code
    return row.astype(np.int32)


def run(made: DelayedSteps, rows: list[np.ndarray], slot: int = 1) -> list[tuple[int, int]]:
    """(frames, end reason) after each row, up to the end."""
    seen = []
    for step, row in enumerate(rows):
        accepted = made.accept(
            np.array([slot], np.int32), np.array([step], np.int32), row[None].copy()
        )
        seen.append((int(accepted.frames[0]), int(accepted.ended[0])))
        if accepted.ended[0]:
            break
    return seen


def speech(end: int, **behind: int) -> list[np.ndarray]:
    """Rows of speech whose first codebook ends at step `end`, and the rows behind it."""
    rows = [said(step) for step in range(end + 12)]
    rows[end] = said(end, b0=END)
    return rows


def test_a_frame_is_whole_seven_steps_later() -> None:
    seen = run(logic(), [said(step) for step in range(12)])
    assert [frames for frames, _ in seen] == [0] * 7 + [1, 2, 3, 4, 5]


def test_it_ends_six_steps_behind_the_end_code() -> None:
    """All frames before the end code are then whole."""
    seen = run(logic(), speech(20))
    assert len(seen) == 27
    assert seen[-1] == (20, EndReason.STOP)
    assert all(not ended for _, ended in seen[:-1])


@pytest.mark.parametrize("step", [0, 3, 7])
def test_an_end_code_is_not_looked_at_before_all_have_begun(step: int) -> None:
    rows = [said(n) for n in range(30)]
    rows[step] = said(step, b0=END)
    assert not run(logic(), rows)[-1][1]


def test_the_first_step_that_counts() -> None:
    assert run(logic(), speech(8))[-1] == (8, EndReason.STOP)


@pytest.mark.parametrize("book", range(1, BOOKS))
def test_a_spoilt_last_frame_is_left_out(book: int) -> None:
    """A codebook that ended a step too soon: its code of the last frame is no sound."""
    rows = speech(20)
    rows[19 + book] = said(19 + book, **{f"b{book}": END})
    if book == 1:
        rows[20] = said(20, b0=END, b1=END)
    assert run(logic(), rows)[-1] == (19, EndReason.STOP)


def test_the_end_of_the_others_spoils_nothing() -> None:
    """As trained: each codebook ends a step later than the one before."""
    rows = speech(20)
    for behind in range(1, 7):
        ends = {f"b{book}": END for book in range(behind + 1)}
        rows[20 + behind] = said(20 + behind, **ends)
    assert run(logic(), rows)[-1] == (20, EndReason.STOP)


def test_an_early_end_code_spoils_the_frame_before_the_end() -> None:
    rows = speech(8)
    rows[7] = said(7, b0=END)
    assert run(logic(), rows)[-1] == (7, EndReason.STOP)


def test_frames_that_were_told_are_never_taken_back() -> None:
    rows = speech(20)
    rows[26] = said(26, b7=END)
    frames = [frames for frames, _ in run(logic(), rows)]
    assert frames == sorted(frames)


def test_a_reused_slot_forgets_that_a_frame_was_spoilt() -> None:
    made, rows = logic(), speech(20)
    rows[26] = said(26, b7=END)
    run(made, rows)
    made.admit(1, PROMPT)
    assert run(made, speech(20))[-1] == (20, EndReason.STOP)


def test_rows_of_a_batch_are_strangers() -> None:
    made = logic()
    ends = {0: 9, 1: 14, 2: 30}
    frames = {}
    for step in range(25):
        slots = np.array([s for s in (2, 0, 1) if s not in frames], np.int32)
        codes = np.stack([said(step, b0=END) if ends[s] == step else said(step) for s in slots])
        accepted = made.accept(slots, np.full(len(slots), step, np.int32), codes)
        for slot, count, ended in zip(slots, accepted.frames, accepted.ended, strict=True):
            if ended:
                frames[int(slot)] = int(count)
    assert frames == {0: 9, 1: 14}


def test_length_ends_with_whole_frames_alone() -> None:
    seen = run(logic(replace(PROMPT, max_steps=15)), [said(step) for step in range(40)])
    assert seen[-1] == (8, EndReason.LENGTH) and len(seen) == 15


def test_a_length_that_the_text_set_is_a_guard() -> None:
    sampling = PROMPT.sampling.copy()
    sampling[-1] = 1
    made = logic(replace(PROMPT, max_steps=15, sampling=sampling))
    assert run(made, [said(step) for step in range(40)])[-1] == (8, EndReason.GUARD)


def test_forced_length_reads_no_end_code() -> None:
    made = logic(replace(PROMPT, max_steps=30, ignore_eos=True))
    assert run(made, speech(20))[-1] == (23, EndReason.LENGTH)


def test_equal_rows_are_a_guard() -> None:
    made = logic(replace(PROMPT, max_steps=1000))
    seen = run(made, [said(3)] * 900)
    assert seen[-1][1] == EndReason.GUARD
    assert len(seen) == REPEAT_GUARD_FRAMES + 1


def test_a_dull_first_codebook_is_a_guard() -> None:
    made = logic(replace(PROMPT, max_steps=1000))
    rows = [said(step, b0=step % 3) for step in range(900)]
    seen = run(made, rows)
    assert seen[-1][1] == EndReason.GUARD
    assert WINDOW_FRAMES <= len(seen) <= WINDOW_FRAMES + 41
    lively = [said(step, b0=step % 9) for step in range(900)]
    assert not run(logic(replace(PROMPT, max_steps=1000)), lively)[-1][1]


def test_the_cap_follows_the_text() -> None:
    assert frame_cap(1) == 96 and frame_cap(50) == 28 + 24 * 50


def test_chunk_steps_say_nothing_of_frames_that_are_not_there() -> None:
    made = logic()
    run(made, speech(20))
    assert made.chunk_steps(1, -2, 5).tolist() == [-1, -1, 0, 1, 2]
    assert made.chunk_steps(1, 18, 4).tolist() == [18, 19, -1, -1]
