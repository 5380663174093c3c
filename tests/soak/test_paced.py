"""Two hundred streams, overload (V21) and slow readers (V22): the short forms of `make soak`.

Where the system lets them go before everything else on the machine, the times are held to as well.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.soak.paced_runs import concurrent, overload, paced_server, slow_readers
from tests.soak.priority import first_served


@pytest.fixture(scope="module")
def prompt() -> Iterator[bool]:
    """Whether times mean anything."""
    with first_served() as granted:
        yield granted


def test_two_hundred_streams_take_less_than_a_core(prompt: bool, tmp_path: Path) -> None:
    with paced_server(tmp_path, slots=200) as server:
        server.wait_ready()
        run = asyncio.run(concurrent(server, streams=200, frames=250))
        assert run.complete == 200
        assert run.api_cores <= 1, run
        if prompt:
            # Looser than the long form: of few seconds the 99th part is a single moment.
            assert run.stalled <= 2 and run.lag_p99_s <= 0.05, run
        slow = asyncio.run(slow_readers(server, slow=12, normal=6, frames=50))
        assert (slow.normal_complete, slow.slow_complete) == (6, 12)
        assert slow.mib_each <= 4
        if prompt:
            assert slow.normal_stalled == 0
            assert slow.normal_ttfa_s <= slow.idle_ttfa_s + 0.1


def test_v21_overload_is_refused_and_forgotten(prompt: bool, tmp_path: Path) -> None:
    with paced_server(tmp_path, slots=32, refuse=True) as server:
        server.wait_ready()
        run = asyncio.run(overload(server, slots=32, frames=50, seconds=3.0))
        assert run.admitted and run.refused
        assert run.incomplete == run.unpolite == run.restarts == 0, run
        if prompt:
            assert run.slowest_refusal_s < 1
            assert run.stalled <= 0.01 * run.admitted
            assert run.after_s <= run.idle_s + 0.1
