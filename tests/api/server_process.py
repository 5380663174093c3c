"""A real server process for tests, and the little that tests ask of it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import psutil
import yaml
from prometheus_client.parser import text_string_to_metric_families

READY_S = 100.0
POLL_S = 0.01

# Refusing for lateness is off: how fast a shared test machine is says nothing about the API.
SETTINGS: Mapping[str, Any] = {
    "model": "tiny",
    "engine": {"slots": 16, "deterministic": True},
    "policy": {"refuse": False},
    "api": {
        "port": 0,
        "queue_timeout_s": 30,
        "slow_reader_s": 3,
        "ws_config_timeout_s": 3,
        "header_timeout_s": 2,
        "body_timeout_s": 2,
    },
}

Value = TypeVar("Value")


def poll(what: str, check: Callable[[], Value], timeout_s: float) -> Value:
    """Ask until the answer is true, and return it. Fails the test after the time-out."""
    deadline = time.monotonic() + timeout_s
    while not (answer := check()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(POLL_S)
    return answer


class ServerProcess:
    """`python -m voxserve.api.server` with `settings` merged over `SETTINGS`, port discovered.

    folder: where it keeps its files. environment: more variables for it. lines: what it logged so
    far, as parsed JSON. key: the API key that `client` sends.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any] | None = None,
        key: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        file = folder / "config.yaml"
        merged = {
            key: dict(value) if isinstance(value, dict) else value
            for key, value in SETTINGS.items()
        }
        for section, values in (settings or {}).items():
            if isinstance(values, Mapping):
                merged[section].update(values)
            else:
                merged[section] = values
        merged["api"].setdefault("voices_dir", str(folder / "voices"))
        file.write_text(yaml.safe_dump(merged))
        self.lines: list[dict[str, Any]] = []
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "voxserve.api.server", str(file)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = int(self.wait_line("listening", 30)["port"])
        self.url = f"http://127.0.0.1:{self.port}"
        self.headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.client = httpx.Client(base_url=self.url, timeout=60, headers=self.headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/audio/speech/stream"

    def wait_line(self, message: str, timeout_s: float, **fields: Any) -> dict[str, Any]:
        """The first log line with that message and those fields."""

        def found() -> dict[str, Any] | None:
            for line in tuple(self.lines):
                wanted = {"message": message, **fields}
                if all(line.get(key) == value for key, value in wanted.items()):
                    return line
            assert self.process.poll() is None or not self._reader.is_alive(), self.lines[-5:]
            return None

        return poll(f"log line {message} {fields}", found, timeout_s) or {}

    def wait_ready(self) -> None:
        def is_ready() -> bool:
            try:
                return self.client.get("/ready").status_code == 200
            except httpx.TransportError:
                self._reader.join(5)
                raise AssertionError(f"the server ended: {self.lines[-20:]}") from None

        poll("the server is ready", is_ready, READY_S)

    def speech(self, **fields: Any) -> httpx.Response:
        """A whole answer to a speech request."""
        return self.client.post("/v1/audio/speech", json=fields)

    def metric(self, name: str, **labels: str) -> float:
        """The sum over all series that carry these labels; 0 if there is none."""
        text = self.client.get("/metrics").text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def buckets(self, name: str) -> dict[float, float]:
        """The counts of a histogram without labels of its own, by upper limit."""
        text = self.client.get("/metrics").text
        return {
            float(sample.labels["le"]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"{name}_bucket"
        }

    def idle(self) -> bool:
        """Nothing runs, waits or is held."""
        return not (
            self.metric("voxserve_codec_slots", state="used")
            or self.metric("voxserve_kv_pages", state="used")
            or self.metric("voxserve_requests_waiting")
            or self.metric("voxserve_requests_in_flight")
            or self.metric("voxserve_ws_sessions")
        )

    def check_lines(self) -> None:
        """Nothing crashed, nothing was answered by a 500."""
        crashes = [line for line in self.lines if "traceback" in line or line.get("status") == 500]
        assert crashes == [], json.dumps(crashes[:2])

    def wait_idle(self, timeout_s: float = 10) -> None:
        poll("everything is released", self.idle, timeout_s)

    def engine(self) -> psutil.Process:
        """The engine process of this moment."""
        (engine,) = (
            child
            for child in psutil.Process(self.process.pid).children()
            if "voxserve.engine" in child.cmdline()
        )
        return engine

    def stop(self) -> int:
        """SIGTERM, and SIGKILL should that not do. Returns the exit code."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self._reader.join(5)
            assert self.process.stderr is not None
            self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"message": line.rstrip()})


def forced(frames: int, **fields: Any) -> dict[str, Any]:
    """Fields of a request that makes exactly that many frames (80 ms each) of noise."""
    extra = {"ignore_eos": True, "max_frames": frames}
    return {"input": "Some words.", "extra_params": extra, **fields}


def has_no_traceback(text: str) -> bool:
    return not re.search(r"Traceback|File \"|\.py", text)
