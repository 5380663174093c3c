"""What the design promises of the lanes, read from a trace of a real run of tiny."""

import json
from pathlib import Path
from typing import Any

from tests.engine.harness import engine, prompt

STREAMS = 8


def test_an_urgent_launch_runs_inside_a_background_launch_that_spans_lm_steps(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace.json"
    settings = {
        "engine": {"slots": STREAMS + 2, "trace": path},
        "policy": {"background_batch": STREAMS, "background_rows": 8, "ramp": 3},
    }
    with engine(settings) as (api, _):
        for number in range(STREAMS):
            api.submit(number, prompt(seed=number, steps=1500), ttfa_s=None, window_s=1000.0)
        api.until(lambda: all(api.heard[number].chunks for number in range(STREAMS)))
        for _ in range(20):
            api.say(prompt(steps=2), ttfa_s=0.2)
    assert proofs(json.loads(path.read_text())["traceEvents"])


def proofs(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """(background, urgent) launches where the urgent one ran wholly inside the background one,
    which also spans two whole LM steps or more."""
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    launches = [event for event in events if event["ph"] == "X"]
    by_lane = {
        lane: [event for event in launches if lanes[event["tid"]] == lane]
        for lane in ("LM", "BACKGROUND", "URGENT")
    }
    steps = [event for event in by_lane["LM"] if event["name"] == "decode"]
    return [
        (background["args"]["number"], urgent["args"]["number"])
        for background in by_lane["BACKGROUND"]
        if sum(inside(step, background) for step in steps) >= 2
        for urgent in by_lane["URGENT"]
        if inside(urgent, background)
    ]


def inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    starts_after = bool(inner["ts"] >= outer["ts"])
    return starts_after and bool(inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"])
