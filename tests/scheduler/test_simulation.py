"""The policy under the fixed costs of a published system, in short runs of the benchmark.

The figures in docs/scheduling.md come from longer runs; the margins here allow for that.
"""

from functools import cache

import pytest

from benchmarks.simulated_capacity import VARIANTS, Result, simulate
from tests.sim import Costs

CAPACITY = 188
"""Requests per second at which 90 % meet the objective, as docs/scheduling.md tells."""
SECONDS = 5.0


@cache
def offered(name: str, rate: float) -> Result:
    (variant,) = (variant for variant in VARIANTS if variant.name == name)
    return simulate(variant, Costs(), rate, SECONDS, seed=0)


def test_nobody_stalls_below_capacity() -> None:
    run = offered("whole system", 0.8 * CAPACITY)
    assert run.stalled == 0.0 and run.late == 0.0
    assert run.attained >= 0.99


def test_overload_costs_no_goodput() -> None:
    at_capacity = offered("whole system", CAPACITY)
    beyond = offered("whole system", 2 * CAPACITY)
    assert beyond.goodput >= 0.95 * at_capacity.goodput
    assert beyond.admitted_attained >= 0.95


@pytest.mark.parametrize(
    "name", ["no partition", "no background batching", "prefill-first admission"]
)
def test_each_mechanism_is_worth_something(name: str) -> None:
    rate = 0.9 * CAPACITY
    assert offered(name, rate).attained < offered("whole system", rate).attained - 0.03


def test_without_refusals_overload_breaks_everybody() -> None:
    assert offered("no refusals", 2 * CAPACITY).attained < 0.3
