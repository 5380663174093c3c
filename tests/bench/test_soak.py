"""A long load: figures by quarter, what the server held before and after, and the verdict."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tests.bench.test_statistics import GOOD
from voxserve.bench import held, processes, soak, workloads
from voxserve.bench.held import Held, in_use
from voxserve.bench.load import Load
from voxserve.bench.records import Record
from voxserve.bench.soak import Limits, Memory, Soak, judge, parts
from voxserve.bench.soak_display import lines
from voxserve.bench.statistics import Window
from voxserve.bench.stub import even, stubs
from voxserve.bench.targets import Target
from voxserve.cli.app import app

PAGE = b"""# HELP voxserve_codec_slots Request slots
voxserve_codec_slots{model="tiny",replica="0",state="free"} 13.0
voxserve_codec_slots{model="tiny",replica="0",state="used"} 3.0
voxserve_kv_pages{model="tiny",pool="text",replica="0",state="used"} 17.0
voxserve_kv_pages{model="tiny",pool="text",replica="0",state="free"} 47.0
voxserve_ws_sessions{model="tiny",replica="0"} 2.0
voxserve_requests_total{model="tiny"} 99.0
"""
HELD = Held({"slots": 0.0, "pages of kv": 4.0}, {"engine": 900.0}, {"GPU 0": 500.0}, {"api": 20})
FLAT = Memory({"engine": 1000.0}, {"engine": 1049.0}, {"GPU 0": 500.0}, {"GPU 0": 549.0}, [])


def _record(due_s: float, ttfa_s: float) -> Record:
    return msgspec.structs.replace(GOOD, due_s=due_s, ttfa_s=ttfa_s)


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> Soak:
    """Of a stub, which has neither slots nor metrics."""
    path = tmp_path_factory.mktemp("soak") / "soak.json"
    words = "--rate 40 --minutes 0.05 --leave 0.5 --burst 4 --max-ttfa-growth 99 --json"
    with stubs(even(0.05, 0.3, 0.8, 6), 2) as url:
        run = CliRunner().invoke(app, ["bench", "soak", url, *words.split(), str(path)])
    found = msgspec.json.decode(path.read_bytes(), type=Soak)
    # A busy machine makes the client late.
    assert run.exit_code == (1 if found.problems else 0), run.output
    assert [problem for problem in found.problems if "client was late" not in problem] == []
    again = CliRunner().invoke(app, ["bench", "show", str(path)])
    assert "no server" in again.output and "memory of api, MiB" in again.output
    assert "no server" in run.output and "PROBLEM" not in run.output.replace("PROBLEM: the cl", "")
    return found


def test_quarters_add_up(soaked: Soak) -> None:
    (whole,) = soaked.result.points
    assert len(soaked.quarters) == 4
    assert sum(quarter.requests for quarter in soaked.quarters) == whole.requests
    assert sum(quarter.left for quarter in soaked.quarters) == whole.left > 0
    assert all(quarter.window_s == pytest.approx(0.75) for quarter in soaked.quarters)


def test_memory_of_the_server_is_watched_all_along(soaked: Soak) -> None:
    # The two stubs listen on one port; the names tell who listens, whatever program that is.
    assert set(soaked.before.host_mib) == set(soaked.after.host_mib) == {"api"}
    assert len(soaked.memory.host) == 65
    assert 10.0 < soaked.memory.early_host_mib["api"] < 1000.0
    assert soaked.before.in_use == {}
    told = "\n".join(lines(soaked))
    assert "does not say how many slots" in told
    assert "memory of api, MiB: " in told


def test_memory_is_watched_to_the_end_of_a_load_that_is_over_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held, "TOLD_S", 0.0)
    # One request, 3 ms from the begin.
    load = Load(rates=(2.0,), seeds=(34,), window_s=1.0, warm_ups=1, burst=0)
    with stubs(even(0.01, 0.01, 0.04, 2), 1) as url:
        target, texts = Target("voxserve", url), workloads.load("libritts")
        found = asyncio.run(
            soak.measure(target, texts, load, {}, rate=2.0, label="stub", command=[])
        )
    assert found.result.points[0].requests == 1
    assert len(found.memory.host) == 65
    assert set(found.memory.end_host_mib) == {"api"}


def test_parts_are_cut_where_requests_were_due() -> None:
    records = [_record(due_s, 0.1 + due_s / 100) for due_s in (0.0, 9.99, 10.0, 25.0, 39.9)]
    found = parts(Window(1.0, 1, 40.0, records), slo_ms=200)
    assert [part.requests for part in found] == [2, 1, 1, 1]
    assert found[3].ttfa_p50_s == pytest.approx(0.499)
    # The last byte comes 2 s after sending, 9.9 s after the quarter's begin.
    assert found[3].audio_rate == pytest.approx(4.0 / (9.9 + 0.001 + 2.0))


def test_what_is_in_use_is_read_from_the_metrics() -> None:
    assert in_use(PAGE) == {"slots": 3.0, "pages of text": 17.0, "sessions": 2.0}
    assert in_use(None) == {}


def test_leaks_and_slowness_are_told(soaked: Soak) -> None:
    quarters = parts(
        Window(1.0, 1, 40.0, [_record(5.0, 0.1), _record(15.0, 0.5), _record(35.0, 0.109)]), 200
    )
    whole = msgspec.structs.replace(soaked.result, valid=True, metrics={})
    assert judge(whole, quarters, HELD, HELD, FLAT, Limits()) == []
    leaking = Held(
        {"slots": 1.0, "pages of kv": 4.0}, {"engine": 900.0}, {"GPU 0": 500.0}, {"api": 37}
    )
    growing = msgspec.structs.replace(
        FLAT, end_host_mib={"engine": 1051.0}, end_gpu_mib={"GPU 0": 551.0}
    )
    restarted = {'voxserve_engine_restarts_total{model="x"}': 1.0}
    slower = [*quarters[:3], parts(Window(1.0, 1, 40.0, [_record(5.0, 0.111)]), 200)[0]]
    worse = msgspec.structs.replace(whole, metrics=restarted, valid=False)
    assert judge(worse, slower, HELD, leaking, growing, Limits()) == [
        "slots: 1 after the last response, 0 before",
        "host memory of engine: 1051 MiB at the end of the load, 1000 MiB at an eighth of it; "
        "50 MiB more are allowed",
        "memory of GPU 0: 551 MiB at the end of the load, 500 MiB at an eighth of it; "
        "50 MiB more are allowed",
        "open files of api: 37 after, 20 before",
        "the engine was started again 1 times",
        "TTFA p99 of the last quarter, 111 ms, is 11 % above the first's, 100 ms; 10 % is allowed",
        "the client was late, so the figures are not valid: use more --processes",
    ]
    silent = [quarters[0], *parts(Window(1.0, 1, 40.0, []), 200)[1:]]
    (problem,) = judge(whole, silent, HELD, HELD, FLAT, Limits())
    assert "got audio" in problem


def test_processes_of_a_port_are_its_listener_and_all_below() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        wait = [sys.executable, "-c", "input()", "voxserve.engine"]
        with subprocess.Popen(wait, stdin=subprocess.PIPE, env={"CUDA_VISIBLE_DEVICES": "6"}) as it:
            found = processes.of_port(port)
            assert found[os.getpid()] == "api"
            assert found[it.pid] == "engine"
            resident = processes.resident_mib(found)
            assert resident["api"] > 10.0 and resident["engine"] > 1.0
            assert processes.open_files(found)["api"] >= 3
            assert processes.visible_gpus([it.pid]) == "6"
            it.communicate()
    assert processes.of_port(port) == {}


def test_nvidia_smi_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\ncase "$*" in *"-i 0,3"*) echo "0, 1024"; echo "3, 77";; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert processes.gpu_mib("0,3") == {"GPU 0": 1024.0, "GPU 3": 77.0}
    assert processes.gpu_mib("9") == {}
