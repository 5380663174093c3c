"""What a request costs each kind of HTTP client, in CPU time, against the benchmark's stub.

    python benchmarks/http_clients.py [--rate 100] [--seconds 10]

Each client is one process that sends requests of ten chunks at an even pace and stamps every chunk.
It prints CPU seconds a request and how late, at the median and the 99th percentile, the first chunk
came after the stub's script. aiohttp and httpx are measured where they are installed.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec

import numpy as np

from voxserve.bench.http_client import endpoint, listen, request_bytes
from voxserve.bench.listening import Listening
from voxserve.bench.records import Order

FIRST_S, GAP_S, CHUNK_S, CHUNKS = 0.05, 0.1, 0.8, 10
BODY = {"input": "Hello.", "response_format": "pcm"}
Fetch = Callable[[], Awaitable[float]]
"""Sends one request and returns its TTFA in seconds."""


async def protocol(url: str) -> Fetch:
    """The benchmark's own client."""
    where = await endpoint(url, {})
    request = request_bytes(where, Order(0, 0.0, "x", "", dict(BODY)))

    async def fetch() -> float:
        listening = Listening()
        await listen(where, request, listening)
        assert listening.complete and len(listening.arrivals) >= CHUNKS
        return listening.arrivals[0][0] - listening.sent_s

    return fetch


async def streams(url: str) -> Fetch:
    """asyncio.open_connection, lines and exact reads."""
    where = await endpoint(url, {})
    request = request_bytes(where, Order(0, 0.0, "x", "", dict(BODY)))

    async def fetch() -> float:
        sent_s, stamps = time.monotonic(), []
        reader, writer = await asyncio.open_connection(where.address, where.port)
        writer.write(request)
        while await reader.readline() != b"\r\n":
            pass
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
            stamps.append(time.monotonic())
        writer.close()
        return stamps[0] - sent_s

    return fetch


async def aiohttp(url: str) -> Fetch:
    import aiohttp

    # Left to the end of the process, like the other clients' connections.
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))

    async def fetch() -> float:
        sent_s, stamps = time.monotonic(), []
        async with session.post(url, json=BODY) as response:
            async for _ in response.content.iter_any():
                stamps.append(time.monotonic())
        return stamps[0] - sent_s

    return fetch


async def httpx(url: str) -> Fetch:
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    client = httpx.AsyncClient(limits=limits, timeout=None, trust_env=False)

    async def fetch() -> float:
        sent_s, stamps = time.monotonic(), []
        async with client.stream("POST", url, json=BODY) as response:
            async for _ in response.aiter_raw():
                stamps.append(time.monotonic())
        return stamps[0] - sent_s

    return fetch


CLIENTS = {"protocol": protocol, "streams": streams, "aiohttp": aiohttp, "httpx": httpx}


async def drive(name: str, url: str, rate: float, seconds: float) -> str:
    """One line about one client."""
    fetch = await CLIENTS[name](url)
    await asyncio.gather(*(fetch() for _ in range(8)))
    start_s, cpu_s = time.monotonic() + 0.1, time.process_time()
    tasks = []
    for number in range(round(rate * seconds)):
        await asyncio.sleep(max(0.0, start_s + number / rate - time.monotonic()))
        tasks.append(asyncio.ensure_future(fetch()))
    ttfas = np.array(await asyncio.gather(*tasks)) - FIRST_S
    cost_ms = 1e3 * (time.process_time() - cpu_s) / len(tasks)
    p50, p99 = np.percentile(1e3 * ttfas, [50, 99])
    return (
        f"{name:9} {cost_ms:6.2f} ms of CPU a request: {1e3 / cost_ms:5.0f} requests/s a core; "
        f"first chunk late by {p50:.1f} ms (p50), {p99:.1f} (p99)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--client", choices=CLIENTS)
    parser.add_argument("--url")
    asked = parser.parse_args()
    if asked.client:
        print(asyncio.run(drive(asked.client, asked.url, asked.rate, asked.seconds)), flush=True)
        return
    pace = ["--first-s", str(FIRST_S), "--gap-s", str(GAP_S), "--chunk-s", str(CHUNK_S)]
    command = [sys.executable, "-m", "voxserve.bench.stub", *pace, "--chunks", str(CHUNKS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        url = f"http://127.0.0.1:{int(stub.stdout.readline())}/v1/audio/speech"
        load = ["--url", url, "--rate", str(asked.rate), "--seconds", str(asked.seconds)]
        for name in CLIENTS:
            if name in sys.modules or find_spec(name) or name in ("protocol", "streams"):
                subprocess.run([sys.executable, __file__, "--client", name, *load], check=True)
            else:
                print(f"{name:9} is not installed")
        stub.terminate()


if __name__ == "__main__":
    main()
