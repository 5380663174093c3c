"""V18–V20, V23, V42: clients that leave, do not read, or ask later how it went."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil
import pytest

from tests.api.server_process import ServerProcess, forced, poll
from tests.api.ws_client import session
from tests.soak.leavers import LONG, drops

DROPS = 1000


@contextmanager
def streaming(server: ServerProcess, request_id: str) -> Iterator[Iterator[bytes]]:
    """A 60 s stream whose first chunk has arrived; leaving the block cuts the connection."""
    headers = {"X-Request-ID": request_id}
    with (
        httpx.Client(base_url=server.url, timeout=60) as client,
        client.stream("POST", "/v1/audio/speech", json=LONG, headers=headers) as response,
    ):
        assert response.status_code == 200
        pieces = response.iter_raw()  # whose end would close the response
        assert next(pieces)
        yield pieces


def test_v18_dropped_stream_is_released(server: ServerProcess) -> None:
    server.wait_idle()
    count = server.metric("voxserve_abort_release_seconds_count")
    seconds = server.metric("voxserve_abort_release_seconds_sum")
    with streaming(server, "v18"):
        assert server.metric("voxserve_requests_in_flight") == 1
    line = server.wait_line("request", 5, request_id="v18")
    assert (line["status"], line["outcome"]) == (499, "cancelled")
    poll(
        "the engine has answered the cancel",
        lambda: server.metric("voxserve_abort_release_seconds_count") == count + 1,
        1,
    )
    assert server.metric("voxserve_abort_release_seconds_sum") - seconds <= 0.25
    server.wait_idle()


def test_v19_a_thousand_drops_leak_nothing(server: ServerProcess) -> None:
    processes = [psutil.Process(server.process.pid), server.engine()]
    asyncio.run(drops(server, DROPS // 10, seed=18))
    server.wait_idle(30)
    server.client.close()
    server.client = httpx.Client(base_url=server.url, timeout=60)
    assert server.client.get("/live").status_code == 200
    before = [(process.memory_info().rss, process.num_fds()) for process in processes]
    asyncio.run(drops(server, DROPS, seed=19))
    server.wait_idle(30)
    for process, (rss, fds) in zip(processes, before, strict=True):
        wait_for_fds(process, fds)
        assert process.memory_info().rss - rss <= 20 * 2**20
    assert server.speech(**forced(13)).status_code == 200


def test_v20_dropped_while_queued_is_never_prefilled(server: ServerProcess) -> None:
    server.wait_idle()
    slots = int(server.metric("voxserve_codec_slots"))
    closed = server.metric("voxserve_requests_total", status="client_closed")
    done = threading.Event()

    async def fill() -> None:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:

            async def hold() -> None:
                async with client.stream("POST", "/v1/audio/speech", json=LONG) as response:
                    pieces = response.aiter_raw()
                    await anext(pieces)
                    holding.release()
                    await asyncio.to_thread(done.wait)

            tasks = [asyncio.create_task(hold()) for _ in range(slots)]
            await asyncio.gather(*tasks)

    holding = threading.Semaphore(0)
    thread = threading.Thread(target=lambda: asyncio.run(fill()))
    thread.start()
    try:
        for _ in range(slots):
            assert holding.acquire(timeout=60)
        poll("the prefills are counted", lambda: used(server) == slots, 10)
        prefills = server.metric("voxserve_prefills_total")
        with (
            pytest.raises(httpx.ReadTimeout),
            httpx.Client(base_url=server.url, timeout=0.5) as client,
        ):
            client.post("/v1/audio/speech", json=LONG)
        poll("the drop is noticed", lambda: more_closed(server, closed), 5)
        poll("nothing waits", lambda: not server.metric("voxserve_requests_waiting"), 5)
        assert server.metric("voxserve_prefills_total") == prefills
    finally:
        done.set()
        thread.join()
    server.wait_idle(30)


def wait_for_fds(process: psutil.Process, most: int) -> None:
    poll("file descriptors are closed", lambda: process.num_fds() <= most, 10)


def used(server: ServerProcess) -> float:
    return server.metric("voxserve_codec_slots", state="used")


def more_closed(server: ServerProcess, before: float) -> bool:
    return server.metric("voxserve_requests_total", status="client_closed") > before


@pytest.mark.parametrize("transport", ["http", "websocket"])
def test_v23_reader_that_stops_is_closed(server: ServerProcess, transport: str) -> None:
    """slow_reader_s of the test server is 3 s."""
    server.wait_idle()
    before = server.metric("voxserve_slow_client_closed_total")

    async def stop_reading() -> None:
        if transport == "http":
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            raw.setblocking(False)
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", server.port))
            request = httpx.Request("POST", f"{server.url}/v1/audio/speech", json=LONG)
            head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
            data = f"POST /v1/audio/speech HTTP/1.1\r\n{head}\r\n".encode() + request.content
            await asyncio.get_running_loop().sock_sendall(raw, data)
            assert await asyncio.get_running_loop().sock_recv(raw, 1024)
            await asyncio.to_thread(was_closed)
            raw.close()
        else:
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            raw.connect(("127.0.0.1", server.port))
            async with session(server.ws_url, sock=raw) as client:
                await client.configure(extra_params=LONG["extra_params"], max_ahead_ms=600_000)
                client.connection.transport.pause_reading()
                await client.send("input.text", text="Some words.")
                await asyncio.to_thread(was_closed)
                client.connection.transport.abort()

    def was_closed() -> None:
        poll(
            "the slow client is cut",
            lambda: server.metric("voxserve_slow_client_closed_total") == before + 1,
            40,
        )

    asyncio.run(stop_reading())
    server.wait_idle()


def test_v42_outcomes(server: ServerProcess) -> None:
    fields = forced(25, response_format="pcm", seed=4)
    response = server.client.post(
        "/v1/audio/speech", json=fields, headers={"X-Request-ID": "v42-done"}
    )
    outcome = server.client.get("/v1/audio/speech/v42-done").json()
    assert (outcome["outcome"], outcome["finish_reason"]) == ("completed", "length")
    assert outcome["audio_ms"] == len(response.content) // 48 == 2000
    assert outcome["usage"]["output_tokens"] == 25
    assert outcome["ttfa_ms"] > 0 and outcome["seed"] == 4
    with streaming(server, "v42-cut"):
        running = server.client.get("/v1/audio/speech/v42-cut").json()
        assert running["outcome"] == "running"
    server.wait_line("request", 5, request_id="v42-cut")
    assert server.client.get("/v1/audio/speech/v42-cut").json()["outcome"] == "cancelled"
    unknown = server.client.get("/v1/audio/speech/made-up")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "request_not_found")
