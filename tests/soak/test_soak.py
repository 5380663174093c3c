"""The short form of `make soak`."""

import asyncio
import json

from tests.api.server_process import ServerProcess
from tests.soak.gauges import held
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
    assert after.restarts == before.restarts
    assert after.api_mib - before.api_mib < 20, (before, after)
    crashes = [line for line in server.lines if "traceback" in line or line.get("status") == 500]
    assert crashes == [], json.dumps(crashes[:2])
