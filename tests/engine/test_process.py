"""`python -m voxserve.engine` as the API process runs it."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engine.harness import PATIENCE_S, Api, prompt, settings_of, tiny
from voxserve.wire import Finished, Ready


@contextmanager
def process(
    settings: dict[str, object], model: str = "tiny"
) -> Iterator[tuple[Api, subprocess.Popen[str]]]:
    config = settings_of({"engine": settings}).model_copy(update={"model": model})
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "voxserve.engine", "--fd", str(theirs.fileno())]
    with ours:
        with theirs:
            running = subprocess.Popen(
                [*command, "--config", config.model_dump_json()],
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
                text=True,
            )
        with running:
            try:
                yield Api(ours, tiny()[0]), running
            finally:
                running.kill()


def test_it_reports_its_start_serves_and_drains_on_sigterm_with_a_whole_trace(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace.json"
    with process({"trace": str(path)}) as (api, running):
        api.until(lambda: api.ready)
        assert api.ready == Ready(4, running.pid)
        assert {message.what for message in api.warming} == {"loading weights", "warming up"}
        last = api.warming[-1]
        assert last.done == last.total
        api.submit(1, prompt(steps=30))
        api.until(lambda: api.heard[1].chunks)
        running.send_signal(signal.SIGTERM)
        assert isinstance(api.finish(1)[0].end, Finished)
        assert running.wait(PATIENCE_S) == 0
    events = json.loads(path.read_text())["traceEvents"]
    assert sum(event["name"] == "decode" for event in events) == 29


def test_it_leaves_at_once_when_the_socket_closes_or_sigterm_comes_twice(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with process({}) as (api, running):
        api.until(lambda: api.ready)
        api.submit(1, prompt(steps=2000), window_s=1000.0)
        api.until(lambda: api.heard[1].chunks)
        api.close()
        assert running.wait(PATIENCE_S) == 0
    with process({"trace": str(path)}) as (api, running):
        api.until(lambda: api.ready)
        api.submit(1, prompt(steps=2000), window_s=1000.0)
        api.until(lambda: api.heard[1].chunks)
        running.send_signal(signal.SIGTERM)
        api.until(lambda: len(api.heard[1].chunks) > 4)
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert json.loads(path.read_text())["traceEvents"]


def test_a_model_that_is_not_there_is_one_line_and_a_failing_code() -> None:
    with process({}, model="no-such-model") as (_, running):
        assert running.wait(PATIENCE_S) == 2
        assert running.stderr is not None
        (line,) = running.stderr.read().splitlines()
        assert "no-such-model" in line
