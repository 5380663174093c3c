"""Servers side by side: each with a GPU and cores of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from voxserve.bench.ladder import Ladder
from voxserve.bench.places import placed, places, ranges
from voxserve.bench.result import read
from voxserve.cli.app import app
from voxserve.errors import InvalidRequestError

TELL = "import json, os; print(json.dumps([*os.sched_getaffinity(0)]), os.environ.get('{}'))"


def test_cores_are_shared_out_equally() -> None:
    found = places(["0", "1", "2", "3"], range(64))
    assert [str(place) for place in found] == [
        "GPU 0, cores 0-15",
        "GPU 1, cores 16-31",
        "GPU 2, cores 32-47",
        "GPU 3, cores 48-63",
    ]
    assert [place.cores for place in places(["5", "7"], [8, 1, 3, 2, 9])] == [[1, 2], [3, 8]]
    assert ranges([7, 1, 2, 3, 9, 10]) == "1-3,7,9-10"
    with pytest.raises(InvalidRequestError, match="named twice"):
        places(["1", "1"], range(4))
    with pytest.raises(InvalidRequestError, match="2 GPUs side by side, but only 1 cores"):
        places(["0", "1"], [4])


def test_command_runs_on_the_cores_and_sees_the_gpu_of_its_place() -> None:
    core = min(os.sched_getaffinity(0))
    (place,) = places(["3"], [core])
    tell = [sys.executable, "-c", TELL.format("CUDA_VISIBLE_DEVICES")]
    run = subprocess.run(placed(tell, place), capture_output=True, text=True, check=True)
    assert run.stdout.split() == [json.dumps([core]), "3"]
    assert placed(tell, None) == tell


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="takes two cores")
def test_sweep_deals_servers_out_to_gpus(tmp_path: Path) -> None:
    """The figures do not matter, so tiny's servers may share two cores with everything else."""
    words = [
        *("bench", "sweep", "tiny", "--output", str(tmp_path), "--gpus", "4,6"),
        *("--ablation", "one:engine.slots=2", "--ablation", "two:engine.slots=3"),
        *("--near", "2,3,1", "--tests", "1", "--window", "1", "--slo-ttfa-ms", "10000"),
        *("--force-length", "--warm-ups", "1", "--burst", "0", "--minutes", "3"),
        *("--set", "policy.refuse=false", "--set", "engine.slots=4"),
    ]
    # In a process of its own: a late client, which a busy machine makes, exits with another code.
    run = subprocess.run(
        [sys.executable, "-m", "voxserve", *words], capture_output=True, text=True, check=True
    )
    assert "two: 1 requests/s, seed 1" in run.stderr
    found = [read(tmp_path / f"{number:02}.json") for number in range(3)]
    assert [made.place.gpu for made in found if made.place] == ["4", "6", "4"]
    cores = [made.place.cores for made in found if made.place]
    assert cores[0] == cores[2] and not set(cores[0]) & set(cores[1])
    assert [made.points[0].rate for made in found] == [2.0, 3.0, 1.0]
    steps = msgspec.json.decode((tmp_path / "ladder.json").read_bytes(), type=Ladder).steps
    assert [step.place for step in steps] == [made.place for made in found]
    report = (tmp_path / "report.md").read_text()
    assert f"- one: `engine.slots=2`; GPU 6, cores {ranges(cores[1])}" in report
    assert "Servers ran side by side" in report
    again = CliRunner().invoke(app, ["bench", "report", str(tmp_path)])
    assert again.exit_code == 0, again.output
