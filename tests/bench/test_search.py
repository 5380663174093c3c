"""The search for a capacity, on servers of a known one."""

import pytest

from voxserve.bench.search import Search


def _tested(capacity: float, near: float, tests: int = 20, refuses: bool = False) -> list[float]:
    """The rates that a search tries on a server that meets up to `capacity` and no more."""
    search = Search(near=near, tests=tests, goal=0.9, precision=0.05)
    tried = []
    for rate in search:
        tried.append(rate)
        met = 1.0 if rate <= capacity else (capacity / rate * 0.95 if refuses else 0.0)
        search.answer(met, rate * met)
    return tried


@pytest.mark.parametrize("capacity", [3.0, 12.0, 40.0, 200.0])
@pytest.mark.parametrize("near", [2.0, 12.0, 150.0])
def test_capacity_is_bracketed_from_any_guess(capacity: float, near: float) -> None:
    tried = _tested(capacity, near)
    met = max(rate for rate in tried if rate <= capacity)
    missed = min(rate for rate in tried if rate > capacity)
    assert missed - met <= 0.06 * capacity
    assert len(set(tried)) == len(tried)


def test_good_guess_needs_few_windows() -> None:
    tried = _tested(capacity=100.0, near=90.0)
    assert len(tried) <= 6
    assert tried[0] == 90.0


def test_goodput_of_a_server_that_refuses_leads_back_at_once() -> None:
    tried = _tested(capacity=100.0, near=130.0, refuses=True)
    assert tried[1] == pytest.approx(95.0, rel=0.01)


def test_tests_are_limited() -> None:
    assert len(_tested(capacity=1000.0, near=1.0, tests=3)) == 3


def test_known_bounds_are_not_tested() -> None:
    search = Search(near=0.0, tests=2, goal=0.9, precision=0.02, low=10.0, high=40.0)
    assert next(search) == 20.0
    search.answer(1.0, 20.0)
    assert next(search) == 28.3
    search.answer(0.5, 14.0)
    with pytest.raises(StopIteration):
        next(search)
