"""The client processes, and one window's load spread over them."""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec
import numpy as np

from voxserve.bench.places import Place, placed
from voxserve.bench.records import Job, Order, Progress, Record, Report, Share
from voxserve.errors import UnavailableError

LEAD_S = 0.5
"""From handing out a job to its start: the processes build their requests in it."""
LEAD_S_AN_ORDER = 0.0002
_LINE_BYTES = 2**30
_answers = msgspec.json.Decoder(Progress | Report)

Watch = Callable[[int, int], None]
"""Called with the requests sent and over so far, of all processes together."""


class ClientPool:
    """So many client processes, started on entry and stopped on exit.

    place: whose cores they keep to. shares: what each has done since the start, or since `forget`.
    """

    def __init__(self, processes: int, place: Place | None = None) -> None:
        self._count, self._place = processes, place
        self.forget()
        self.processes: list[asyncio.subprocess.Process] = []

    def forget(self) -> None:
        """Count the processes' shares from here on."""
        self.shares = [Share(0, 0.0, 0.0)] * self._count

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            process = await asyncio.create_subprocess_exec(
                *placed([sys.executable, "-m", "voxserve.bench.worker"], self._place),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES,
            )
            self.processes.append(process)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.processes:
            if kind is not None:
                with suppress(ProcessLookupError):
                    process.kill()
            if process.stdin is not None:
                process.stdin.close()
        await asyncio.gather(*(process.wait() for process in self.processes))

    async def run(self, job: Job, watch: Watch) -> list[Record]:
        """Send the job's orders from all processes; its `start_s` is set here.

        Returns the records in the orders' order. Raises UnavailableError when a client process
        dies.
        """
        counts = [(0, 0)] * self._count

        def told(number: int, progress: Progress) -> None:
            counts[number] = (progress.sent, progress.over)
            watch(sum(sent for sent, _ in counts), sum(over for _, over in counts))

        start_s = time.monotonic() + LEAD_S + LEAD_S_AN_ORDER * len(job.orders)
        shares = await asyncio.gather(
            *(
                self._share(number, _dealt(job, number, self._count, start_s), told)
                for number in range(self._count)
            )
        )
        records = [record for share in shares for record in share]
        return sorted(records, key=lambda record: record.index)

    async def _share(
        self, number: int, job: Job, told: Callable[[int, Progress], None]
    ) -> list[Record]:
        process = self.processes[number]
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        await process.stdin.drain()
        while line := await process.stdout.readline():
            answer = _answers.decode(line)
            if isinstance(answer, Report):
                self._note(number, answer)
                return answer.records
            told(number, answer)
        raise UnavailableError(f"client process {number} ended in the middle of a window")

    def _note(self, number: int, report: Report) -> None:
        before = self.shares[number]
        late = [record.late_s for record in report.records]
        late_s = float(np.percentile(late, 99)) if late else 0.0
        self.shares[number] = Share(
            before.requests + len(late),
            before.cpu_s + report.cpu_s,
            max(before.late_p99_s, late_s),
        )


def _dealt(job: Job, number: int, count: int, start_s: float) -> Job:
    """The share of one process: every `count`-th order, so that all are equally busy."""
    orders: list[Order] = job.orders[number::count]
    in_flight = job.in_flight
    if in_flight is not None:
        in_flight = in_flight // count + (number < in_flight % count)
    return msgspec.structs.replace(job, orders=orders, start_s=start_s, in_flight=in_flight)
