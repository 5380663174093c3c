"""What a request's start is reckoned to take."""

import pytest

from tests.scheduler.world import SEED, policy, shape
from voxserve.scheduler.estimates import Estimates
from voxserve.scheduler.load import Load
from voxserve.scheduler.rows import Rows

SHORT_S, LONG_S = 0.020, 0.040


def loaded(turns: list[float]) -> Load:
    """After decode steps that came so far apart."""
    sizes = shape()
    load = Load(sizes, policy(), Estimates(SEED), Rows(sizes))
    now = 0.0
    load.stepped(now)
    for turn_s in turns:
        now += turn_s
        load.stepped(now)
    return load


def test_one_turn_may_be_a_late_one() -> None:
    load = loaded([SHORT_S, LONG_S] * 8)
    assert load.turns_s(1, 1) == pytest.approx(LONG_S)


def test_many_turns_are_not_all_late() -> None:
    load = loaded([SHORT_S, LONG_S] * 8)
    mean_s = (SHORT_S + LONG_S) / 2
    assert 15 * mean_s < load.turns_s(15, 1) < 15 * mean_s + 4 * (LONG_S - mean_s)
    assert load.turns_s(400, 1) / 400 == pytest.approx(mean_s, rel=0.05)


def test_even_turns_add_up() -> None:
    load = loaded([LONG_S] * 5)
    assert load.turns_s(7, 1) == pytest.approx(7 * LONG_S)
