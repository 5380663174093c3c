"""When a request is over: the end code, limits and the guards against running away."""

import numpy as np
import pytest

from voxserve.models.qwen3_tts.limits import SAMPLING
from voxserve.models.qwen3_tts.steps import WINDOW_FRAMES, GuardedSteps, frame_cap
from voxserve.plugin import EndReason
from voxserve.requests import Prompt
from voxserve.steps import LEAST_DIFFERENT

EOS = 2150
HOP = 1920


def steps_for(
    max_steps: int = 2000, *, auto: bool = False, ignore_eos: bool = False
) -> GuardedSteps:
    sampling = np.zeros(len(SAMPLING), np.float32)
    sampling[-1] = auto
    empty = np.zeros((0, 1), np.int32)
    prompt = Prompt(empty, empty, False, max_steps, sampling, 0, 1, ignore_eos)
    logic = GuardedSteps(3, EOS, HOP, len(SAMPLING) - 1)
    logic.admit(1, prompt)
    return logic


def run(logic: GuardedSteps, firsts: np.ndarray) -> tuple[int, EndReason]:
    """(frames, reason) of codes with these first codebooks and ever new other ones."""
    slot = np.array([1], np.int32)
    frames, step = 0, 0
    for step, first in enumerate(firsts):
        codes = np.full((1, 16), step, np.int32)
        codes[0, 0] = first
        accepted = logic.accept(slot, np.array([step], np.int32), codes)
        frames = int(accepted.frames[0])
        if accepted.ended[0]:
            return frames, EndReason(accepted.ended[0])
    return frames, EndReason.NONE


def test_the_end_code_is_no_frame() -> None:
    assert run(steps_for(), np.array([5, 6, 7, EOS])) == (3, EndReason.STOP)


def test_the_clients_limit_is_a_length() -> None:
    assert run(steps_for(4), np.arange(9)) == (4, EndReason.LENGTH)


def test_the_cap_from_the_text_is_a_guard() -> None:
    assert run(steps_for(4, auto=True), np.arange(9)) == (4, EndReason.GUARD)
    assert run(steps_for(4, auto=True), np.array([1, 2, 3, EOS])) == (3, EndReason.STOP)


@pytest.mark.parametrize("different", range(1, LEAST_DIFFERENT + 1))
def test_a_monotonous_stretch_is_a_guard(different: int) -> None:
    """Speech first, then a loop over few first codes: it ends within 1.2 windows."""
    speech = np.arange(150) * 7 % 2048
    frames, reason = run(steps_for(), np.concatenate([speech, np.arange(400) % different]))
    assert reason is EndReason.GUARD
    assert 150 < frames <= 150 + 1.2 * WINDOW_FRAMES + 1


def test_varied_speech_and_short_pauses_go_on() -> None:
    """A pause of three seconds within speech is no silence without end."""
    rng = np.random.default_rng(0)
    speech = rng.integers(0, 2048, 2000)
    for start in range(0, 1900, 200):
        speech[start : start + 38] = 11
    assert run(steps_for(3000), speech)[1] is EndReason.NONE


def test_benchmarks_with_forced_length_have_no_guard() -> None:
    assert run(steps_for(600, ignore_eos=True), np.zeros(700)) == (600, EndReason.LENGTH)


def test_a_reused_slot_starts_clean() -> None:
    logic = steps_for()
    run(logic, np.zeros(90))
    empty = np.zeros((0, 1), np.int32)
    logic.admit(1, Prompt(empty, empty, False, 300, np.zeros(len(SAMPLING), np.float32), 0, 1))
    assert run(logic, np.arange(90) * 3) == (90, EndReason.NONE)


def test_cap_grows_with_the_text_and_is_short_for_a_word() -> None:
    """A short text may not run on for more than four seconds; a long one has three times the 4
    frames a token that calm speech takes."""
    assert all(frame_cap(tokens) * 0.08 <= 4 for tokens in (1, 2, 3))
    assert frame_cap(100) >= 3 * 4 * 100
    assert all(frame_cap(n) <= frame_cap(n + 1) for n in range(200))
