"""The short form of `make soak`."""

import asyncio

from tests.api.server_process import ServerProcess
from tests.soak.gauges import held
from tests.soak.leavers import cancels
from tests.soak.load import load


def test_nothing_is_left_behind(server: ServerProcess) -> None:
    assert asyncio.run(load(server, seconds=1, clients=6, seed=1)).problems == []
    before = held(server)
    report = asyncio.run(load(server, seconds=2, clients=6, seed=2))
    after = held(server)
    assert report.problems == []
    assert sum(report.counts.values()) >= 6
    # Worker threads start when they are first needed, and stay.
    assert after.fds <= before.fds + 2, (before, after)
    assert after.tasks <= before.tasks, (before, after)
    assert after.restarts == before.restarts
    assert after.api_mib - before.api_mib < 20, (before, after)
    server.check_lines()


def test_cancels_at_random_moments(server: ServerProcess) -> None:
    """None of what was cancelled is heard of any more. How soon: V28, and the long form."""
    done = asyncio.run(cancels(server, count=40, seed=3))
    assert done.stale == []
    assert len(done.answer_s) == 40 and done.heard > 5
    server.wait_idle()
