"""What a server holds: slots, pages and sessions by its own account, and its memory."""

import asyncio
import time
from urllib.parse import urlsplit

import msgspec

from voxserve.bench import processes, result
from voxserve.bench.metrics import METRICS, labels_of, samples

# The engine tells the API process once a second.
TOLD_S = 1.5
_POLL_S = 0.5
_LOCAL = ("127.0.0.1", "localhost", "::1")
_GAUGES = {
    "voxserve_codec_slots": "slots",
    "voxserve_kv_pages": "pages",
    "voxserve_ws_sessions": "sessions",
    "voxserve_requests_in_flight": "running requests",
    "voxserve_requests_waiting": "waiting requests",
}


class Held(msgspec.Struct, frozen=True):
    """in_use: slots, pages of each pool, sessions, requests; none for a server that does not say.
    host_mib and open_files: by process; gpu_mib: by GPU, all programs together. They are empty
    where they cannot be seen.
    """

    in_use: dict[str, float]
    host_mib: dict[str, float]
    gpu_mib: dict[str, float]
    open_files: dict[str, int]


class Holder:
    """A server to be looked at. gpus: as nvidia-smi counts them; those that it sees, if not given.

    Processes are looked for at every look but `host_mib`, since an engine may have been restarted.
    """

    def __init__(self, url: str, headers: dict[str, str], gpus: str | None = None) -> None:
        self._url, self._headers, self._gpus = url, headers, gpus
        parts = urlsplit(url)
        self._local = parts.hostname in _LOCAL
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._processes: dict[int, str] = {}

    async def look(self) -> Held:
        page = await result.ask(self._url, METRICS, self._headers)
        return await asyncio.to_thread(self._look, in_use(page))

    async def host_mib(self) -> dict[str, float]:
        return await asyncio.to_thread(processes.resident_mib, self._processes)

    async def look_when_released(self, down_to: dict[str, float], wait_s: float) -> Held:
        """Once no more is in use than `down_to` says, or after `wait_s`."""
        until_s = time.monotonic() + wait_s
        await asyncio.sleep(TOLD_S)
        while True:
            held = await self.look()
            more = any(held.in_use[name] > down_to.get(name, 0.0) for name in held.in_use)
            if not more or time.monotonic() > until_s:
                return held
            await asyncio.sleep(_POLL_S)

    def _look(self, used: dict[str, float]) -> Held:
        self._processes = processes.of_port(self._port) if self._local else {}
        gpus = self._gpus or processes.visible_gpus(self._processes)
        return Held(
            in_use=used,
            host_mib=processes.resident_mib(self._processes),
            gpu_mib=processes.gpu_mib(gpus) if self._processes or self._gpus else {},
            open_files=processes.open_files(self._processes),
        )


def in_use(page: bytes | None) -> dict[str, float]:
    """What is held by a page of metrics, such as {"slots": 3.0, "pages of text": 17.0}."""
    found: dict[str, float] = {}
    for gauge, text, value in samples(page):
        labels = labels_of(text)
        if gauge in _GAUGES and labels.get("state", "used") == "used":
            pool = f" of {labels['pool']}" if "pool" in labels else ""
            name = _GAUGES[gauge] + pool
            found[name] = found.get(name, 0.0) + float(value)
    return found
