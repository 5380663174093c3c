"""The result of a measurement as a JSON file: its figures and all that is needed to repeat it."""

import asyncio
import os
import platform
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import msgspec

from voxserve import __version__
from voxserve.bench.load import Load
from voxserve.bench.places import Place
from voxserve.bench.records import Share
from voxserve.bench.statistics import GOALS, Capacity, Figures, Window, capacity, figures
from voxserve.bench.targets import Target
from voxserve.bench.workloads import Workload
from voxserve.errors import InvalidRequestError

SCHEMA = 1
PACKAGES = ("torch", "numpy", "uvicorn", "fastapi", "websockets", "httptools", "flashinfer-python")
ASK_TIMEOUT_S = 5.0
Kind = Literal["serve", "offline", "simulate", "stub"]


class Texts(msgspec.Struct, frozen=True):
    """The workload as a result names it."""

    name: str
    rows: int
    sha256: str
    pool_sha256: str
    replacement: bool


class Result(msgspec.Struct, frozen=True):
    """kind: how the figures came to be; `stub`: the other side only played a script, so they tell
    of the client alone. valid: every window was sent in time. points: by rate, seeds pooled;
    windows: by rate and seed. server: what it says of itself. metrics: how far its counters moved
    during the run. settings: in which its server differs from others of the same command. client:
    what each client process did. place: where on the machine server and clients ran, if that was
    given.
    """

    schema: int
    kind: Kind
    label: str
    made_at: str
    valid: bool
    command: list[str]
    target: dict[str, Any]
    texts: Texts
    load: dict[str, Any]
    machine: dict[str, Any]
    server: dict[str, Any]
    metrics: dict[str, float]
    points: list[Figures]
    windows: list[Figures]
    capacity: list[Capacity]
    settings: list[str] = []
    client: list[Share] = []
    place: Place | None = None


def result(
    kind: Kind,
    label: str,
    target: Target,
    workload: Workload,
    load: Load,
    points: Sequence[Figures],
    windows: Sequence[Window],
    *,
    command: list[str],
    server: dict[str, Any],
    metrics: dict[str, float],
    settings: Sequence[str] = (),
    client: Sequence[Share] = (),
    place: Place | None = None,
) -> Result:
    """The result of these windows, wherever they come from."""
    stub = any(record.stub for window in windows for record in window.records)
    return Result(
        schema=SCHEMA,
        kind="stub" if stub else kind,
        label=label,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        # Nobody waits for a certain moment to send when all is sent at once.
        valid=kind != "serve" or all(point.valid for point in points),
        command=command,
        target=_fields(target),
        texts=texts(workload),
        load=_plain(load),
        machine=machine(),
        server=server,
        metrics=metrics,
        points=list(points),
        windows=[figures([window], load.slo_ms) for window in windows],
        capacity=[capacity(points, goal) for goal in GOALS],
        settings=list(settings),
        client=list(client),
        place=place,
    )


def texts(workload: Workload) -> Texts:
    return Texts(
        workload.name,
        len(workload.rows),
        workload.sha256,
        workload.pool_sha256,
        workload.replacement,
    )


def write(result: Result, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def read(path: Path) -> Result:
    """Raises InvalidRequestError naming the file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidRequestError(f"{path} is not a result of the benchmark: {error}") from error


def machine() -> dict[str, Any]:
    """The computer that the client runs on (and mostly the server too), and the code's commit."""
    return {
        "voxserve": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": _cpu(),
        "gpu": _lines(
            "nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"
        ),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


async def ask(url: str, path: str, headers: dict[str, str]) -> bytes | None:
    """A GET of what a server says of itself; None where it says nothing."""
    return await asyncio.to_thread(_ask, url.rstrip("/") + path, headers)


async def about(url: str, headers: dict[str, str]) -> dict[str, Any]:
    """The server's own version and models, where it tells them."""
    told = {}
    for name, path in [("version", "/version"), ("models", "/v1/models")]:
        body = await ask(url, path, headers)
        if body is not None:
            try:
                told[name] = msgspec.json.decode(body)
            except msgspec.DecodeError:
                continue
    return told


def _ask(url: str, headers: dict[str, str]) -> bytes | None:
    request = urllib.request.Request(url, headers=headers)
    # Straight to the server, as the load goes: no proxy of the environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=ASK_TIMEOUT_S) as response:
            return bytes(response.read())
    except (OSError, urllib.error.URLError, ValueError):
        return None


def _fields(target: Target) -> dict[str, Any]:
    clip = target.clip and {"sha256": target.clip.sha256, "text": target.clip.text}
    return _plain(replace(target, clip=None)) | {"params": dict(target.params), "clip": clip}


def _plain(record: object) -> dict[str, Any]:
    """As it will be read back from JSON."""
    return msgspec.json.decode(msgspec.json.encode(record), type=dict[str, Any])


def _commit() -> str | None:
    """Of the source tree that this runs from; an installed package has none."""
    tree = Path(__file__).parents[2]
    if not (tree / ".git").exists():
        return None
    lines = _lines("git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=12")
    return lines[0] if lines else None


def _cpu() -> str:
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        model = platform.processor()
    return f"{cores()} x {model}".strip()


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _lines(*command: str) -> list[str]:
    if shutil.which(command[0]) is None:
        return []
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout.split("\n")[:-1] if run.returncode == 0 else []
