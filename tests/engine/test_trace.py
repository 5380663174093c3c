import json
import logging
from pathlib import Path

import numpy as np
import pytest

from voxserve.engine.lanes import LaneDone
from voxserve.engine.trace import Trace
from voxserve.scheduler.launches import Lane, Launch, Stage


def done(number: int, lane: Lane, stage: Stage) -> LaneDone:
    slots = np.array([3, 5], np.int32)
    launch = Launch(number, lane, stage, 2, 10, slots + 100, slots, reason="full")
    return LaneDone(launch, {}, begin_s=2.0, end_s=2.5)


def test_the_file_is_valid_after_every_flush_and_names_lane_rows_and_reason(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace.json"
    trace = Trace(path, pid=77)
    lengths = []
    for number in range(3):
        trace.launch(done(number, Lane.BACKGROUND, Stage.CODEC))
        trace.flush()
        events = json.loads(path.read_text())["traceEvents"]
        lengths.append(len([event for event in events if event["ph"] == "X"]))
    assert lengths == [1, 2, 3]
    trace.close()
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert set(names.values()) == {"LM", "BACKGROUND", "URGENT"}
    last = events[-1]
    assert names[last["tid"]] == "BACKGROUND"
    assert (last["name"], last["ts"], last["dur"]) == ("codec", 2e6, 5e5)
    assert last["args"]["slots"] == [3, 5]
    assert (last["args"]["rows"], last["args"]["reason"]) == (2, "full")


def test_a_full_file_stays_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "trace.json"
    trace = Trace(path, pid=77, limit_bytes=2000)
    sizes = []
    with caplog.at_level(logging.WARNING, "voxserve"):
        for number in range(40):
            trace.launch(done(number, Lane.LM, Stage.DECODE))
            trace.flush()
            sizes.append(path.stat().st_size)
    trace.close()
    assert 2000 <= sizes[-1] == sizes[-20] < 2300
    events = json.loads(path.read_text())["traceEvents"]
    assert events[-1]["args"]["number"] == len(events) - 5
    assert [record.message for record in caplog.records] == [
        f"{path} is full: launches from here on are not in it"
    ]
