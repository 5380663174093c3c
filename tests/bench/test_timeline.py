"""What the lanes did, from a trace that the engine's own writer made."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from voxserve.bench.timeline import Timeline, plot, read, summary
from voxserve.cli.app import app
from voxserve.engine.lanes import LaneDone
from voxserve.engine.trace import Trace
from voxserve.errors import InvalidRequestError
from voxserve.scheduler.launches import Lane, Launch, Stage

# Lane, stage, begin and end in milliseconds, slots.
LAUNCHES = [
    (Lane.LM, Stage.PREFILL, 0, 10, [1]),
    (Lane.LM, Stage.DECODE, 10, 30, [1, 2]),
    (Lane.BACKGROUND, Stage.CODEC, 20, 70, [3, 4, 5]),
    (Lane.LM, Stage.DECODE, 32, 50, [1, 2]),
    (Lane.URGENT, Stage.CODEC, 34, 35, [1]),
    (Lane.LM, Stage.DECODE, 90, 100, [7]),
]


def write(file: Path, launches: list[tuple[Lane, Stage, int, int, list[int]]]) -> Path:
    trace = Trace(file, pid=1)
    for number, (lane, stage, begin_ms, end_ms, slots) in enumerate(launches):
        rows = np.array(slots)
        launch = Launch(number, lane, stage, len(slots), 10, rows, rows)
        begin_s, end_s = 500 + begin_ms / 1e3, 500 + end_ms / 1e3
        trace.launch(LaneDone(launch, {}, begin_s=begin_s, end_s=end_s))
    trace.close()
    return file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "trace.json", LAUNCHES)


@pytest.fixture
def made(path: Path) -> Timeline:
    return read(path)


def test_figures_of_a_whole_trace(made: Timeline) -> None:
    assert made.end_s == pytest.approx(0.1)
    assert summary(made, 0.0, made.end_s) == [
        "0.000 s to 0.100 s of the trace, 6 launches",
        "lane LM: busy 58.0 %, 4 launches, 6 rows, 1.5 each",
        "  prefill: busy 10.0 %, 1 launches, 1 rows, 1.0 each, 10.00 / 10.00 ms at p50 / p99",
        "  decode: busy 48.0 %, 3 launches, 5 rows, 1.7 each, 18.00 / 19.96 ms at p50 / p99",
        "lane BACKGROUND: busy 50.0 %, 1 launches, 3 rows, 3.0 each",
        "  codec: busy 50.0 %, 1 launches, 3 rows, 3.0 each, 50.00 / 50.00 ms at p50 / p99",
        "lane URGENT: busy 1.0 %, 1 launches, 1 rows, 1.0 each",
        "  codec: busy 1.0 %, 1 launches, 1 rows, 1.0 each, 1.00 / 1.00 ms at p50 / p99",
        "gaps on lane LM: 3, 2.000 / 39.240 ms at p50 / p99, 0.042 s in all (42.0 % of the time)",
        "  of them host gaps (a row goes on after it): 2, 1.000 / 1.980 ms at p50 / p99, "
        "0.002 s in all (2.0 % of the time)",
        "no lane busy: 20.0 % of the time",
    ]


def test_figures_of_a_part_cut_launches_off(made: Timeline) -> None:
    lines = summary(made, 0.025, 0.045)
    assert lines[0] == "0.025 s to 0.045 s of the trace, 4 launches"
    assert lines[1] == "lane LM: busy 90.0 %, 2 launches, 4 rows, 2.0 each"
    assert "lane BACKGROUND: busy 100.0 %, 1 launches, 3 rows, 3.0 each" in lines
    assert lines[-1] == "no lane busy: 0.0 % of the time"


def test_clips_are_not_taken_for_the_streams_of_their_numbers(tmp_path: Path) -> None:
    stages = [Stage.DECODE, Stage.DECODE, Stage.ENCODE, Stage.DECODE]
    same_slot = [(Lane.LM, stage, 10 * at, 10 * at + 5, [1]) for at, stage in enumerate(stages)]
    found = read(write(tmp_path / "clips.json", same_slot))
    assert [span.goes_on for span in found.spans] == [False, True, False, False]


def test_picture_and_figures_by_command(path: Path, tmp_path: Path) -> None:
    picture = tmp_path / "lanes.png"
    words = ["bench", "timeline", str(path), "-o", str(picture), "--from", "0", "--for", "100"]
    run = CliRunner().invoke(app, [*words, "--between", "0:0.05"])
    assert run.exit_code == 0, run.output
    assert "lane LM: busy 96.0 %" in run.output
    assert picture.stat().st_size > 5_000
    outside = CliRunner().invoke(app, [*words, "--between", "3:4"])
    assert outside.exit_code == 2 and "within the 0.100 s" in outside.output


def test_nothing_to_draw_is_said(made: Timeline, path: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"nothing ran between 0.075 s and 0.08 s"):
        plot(made, 0.075, 0.080, tmp_path / "lanes.png")
    path.write_text("[]")
    with pytest.raises(InvalidRequestError, match="no trace of an engine"):
        read(path)
    path.write_text('{"traceEvents": []}')
    with pytest.raises(InvalidRequestError, match="no launch"):
        read(path)
