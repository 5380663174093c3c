"""A client process: `python -m voxserve.bench.worker` reads a Job a line and answers each.

The answer is a few `Progress` lines and one `Report` line. Several such processes share a load
that one event loop could not send without being late itself.
"""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine

import msgspec

from voxserve.bench import http_client, websocket_client
from voxserve.bench.listening import Listening
from voxserve.bench.records import Job, Order, Progress, Record, Report

TICK_S = 0.25
Send = Callable[[Order, Listening], Coroutine[None, None, None]]
Tell = Callable[[Progress], None]


async def run(job: Job, tell: Tell) -> list[Record]:
    """Send every order when it is due and listen to all of them; records in the orders' order."""
    send = await _sender(job)
    listenings = [Listening(audio=bytearray() if order.keep else None) for order in job.orders]
    tasks: set[asyncio.Task[None]] = set()
    gate = asyncio.Semaphore(job.in_flight or len(job.orders) or 1)
    sent = 0

    def ended(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        gate.release()
        if not task.cancelled():
            task.result()

    async def tick() -> None:
        parent = os.getppid()
        while os.getppid() == parent:
            tell(Progress(sent, sent - len(tasks)))
            await asyncio.sleep(TICK_S)
        os._exit(1)  # The parent is gone, and nobody wants the rest.

    async def attend(order: Order, listening: Listening) -> None:
        try:
            async with asyncio.timeout(order.leave_s):
                await send(order, listening)
        except TimeoutError:
            listening.leave()

    ticker = asyncio.create_task(tick())
    for order, listening in zip(job.orders, listenings, strict=True):
        # Absolute times: a late request does not make the ones behind it late.
        await asyncio.sleep(max(0.0, job.start_s + order.due_s - time.monotonic()))
        await gate.acquire()
        task = asyncio.create_task(attend(order, listening))
        tasks.add(task)
        task.add_done_callback(ended)
        sent += 1
    if tasks:
        _, endless = await asyncio.wait(tasks, timeout=job.wait_s)
        for task in endless:
            task.cancel()
        await asyncio.gather(*endless, return_exceptions=True)
    ticker.cancel()
    tell(Progress(sent, sent))
    return [
        listening.record(order, job)
        for order, listening in zip(job.orders, listenings, strict=True)
    ]


async def _sender(job: Job) -> Send:
    """The function that sends one order, with all that can be done beforehand done."""
    rest = http_client.rest_of_body(job.shared)
    if job.transport == "websocket":
        said = {order.index: websocket_client.messages(order) for order in job.orders}
        text = rest.decode()

        def messages(order: Order) -> list[str]:
            session, *others = said[order.index]
            return [session[: len(session) - bool(text)] + text, *others]

        return lambda order, listening: websocket_client.listen(
            job.url, job.headers, messages(order), listening
        )
    where = await http_client.endpoint(job.url, job.headers)
    requests = {order.index: http_client.request_bytes(where, order, rest) for order in job.orders}
    return lambda order, listening: http_client.listen(
        where, requests[order.index] + rest, listening
    )


def main() -> None:
    # Ctrl-C reaches every process of the terminal; the parent decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs = msgspec.json.Decoder(Job)
    encode = msgspec.json.Encoder().encode

    def say(message: Progress | Report) -> None:
        sys.stdout.buffer.write(encode(message) + b"\n")
        sys.stdout.buffer.flush()

    for line in sys.stdin.buffer:
        job = jobs.decode(line)
        # A collection in the middle of a window would be taken for the server's delay.
        gc.collect()
        gc.freeze()
        gc.disable()
        begin_s = time.process_time()
        records = asyncio.run(run(job, say))
        gc.enable()
        say(Report(records, time.process_time() - begin_s))


if __name__ == "__main__":
    main()
