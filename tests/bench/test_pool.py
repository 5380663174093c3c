"""Client processes: their shares, and what happens when one dies."""

import asyncio
import os
import signal

import pytest

from voxserve.bench.pool import ClientPool
from voxserve.bench.records import Job, Order, Share
from voxserve.bench.stub import even, stubs
from voxserve.errors import UnavailableError


def _job(url: str, orders: int) -> Job:
    return Job(
        url=f"{url}/v1/audio/speech",
        transport="http",
        headers={},
        orders=[
            Order(i, 0.05 * i, f"row-{i}", "Hello.", {"input": "Hello."}) for i in range(orders)
        ],
        start_s=0.0,
        wait_s=10.0,
        sample_rate_hz=24_000,
        frame_s=0.08,
    )


def test_records_come_back_in_the_orders_order() -> None:
    seen: list[tuple[int, int]] = []

    async def ran() -> tuple[list[int], list[Share]]:
        async with ClientPool(3) as pool:
            records = await pool.run(_job(url, 8), lambda sent, over: seen.append((sent, over)))
        return [record.index for record in records], pool.shares

    with stubs(even(0.01, 0.01, 0.04, 2), 1) as url:
        found, shares = asyncio.run(ran())
    assert found == list(range(8))
    assert [share.requests for share in shares] == [3, 3, 2]
    assert all(share.cpu_s > 0 for share in shares)
    assert seen[-1] == (8, 8)
    assert seen == sorted(seen)


def test_dead_client_process_ends_the_run() -> None:
    async def ran() -> None:
        async with ClientPool(2) as pool:

            def kill_one(sent: int, over: int) -> None:
                process = pool.processes[0]
                if sent and process.returncode is None:
                    os.kill(process.pid, signal.SIGKILL)

            await pool.run(_job(url, 60), kill_one)

    with stubs(even(0.01, 0.01, 0.04, 2), 1) as url, pytest.raises(UnavailableError, match="ended"):
        asyncio.run(ran())
