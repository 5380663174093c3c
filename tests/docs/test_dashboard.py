"""The Grafana dashboard asks for nothing that the server does not tell."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.api.server_process import ServerProcess, poll
from voxserve import wire
from voxserve.api.service import Service
from voxserve.config import Config

DASHBOARD = Path(__file__).parents[2] / "docs" / "operations" / "dashboard.json"
STATS = wire.Stats(
    slots_free=1,
    slots_total=2,
    waiting=0,
    pages={"kv": (1, 2)},
    lane_busy={"lm": 0.5},
    dispatches={"urgent/first": 1},
    codec_rows={"urgent/3": 1, "background/16": 2},
    prefills=1,
    step_age_s=0.0,
    loop_s=0.0,
)


def _told() -> tuple[str, set[str]]:
    """What `/metrics` says, and the names of its series."""
    service = Service(Config())
    service.client.stats = STATS
    text = generate_latest(service.metrics.registry).decode()
    names = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M):
        names |= {f"{name}{end}" for end in ("_bucket", "_sum", "_count")}
        names -= set() if kind == "histogram" else {f"{name}_bucket"}
        names.add(name)
    return text, names


def test_every_metric_exists_and_every_panel_has_its_place() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    _, names = _told()
    asked = set(re.findall(r"voxserve_\w+", DASHBOARD.read_text()))
    assert asked <= names
    assert len(asked) > 20
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def expressions() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))


def test_a_server_that_speaks_tells_all_that_is_asked_for(server: ServerProcess) -> None:
    """Every series by name, and with the labels that the expression groups or chooses by, where
    what they count has happened."""
    assert server.speech(input="Hello.").status_code == 200
    poll("the engine reports", lambda: server.metric("voxserve_prefills_total"), 5)
    text = server.client.get("/metrics").text
    labels: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels[sample.name] |= set(sample.labels)
    known = set(re.findall(r"^# TYPE (\w+) ", text, re.M))
    seen = 0
    for expression in expressions():
        name, chosen = re.findall(r"(voxserve_\w+)\{(.*?)\}", expression)[0]
        asked = {
            *re.findall(r"(\w+)=", chosen),
            *(word for by in re.findall(r"by \((.*?)\)", expression) for word in by.split(", ")),
        }
        assert name in labels or name in known, name
        if name in labels:
            seen += 1
            assert asked <= labels[name], expression
    assert seen > 25


def test_batch_sizes_are_a_histogram() -> None:
    text, _ = _told()
    sizes = dict(re.findall(r'codec_batch_size_\w+\{(?=.*lane="urgent")(.*)\} (.*)', text))
    below = {
        re.findall(r'le="(\S+?)"', labels)[0]: value
        for labels, value in sizes.items()
        if "le=" in labels
    }
    assert (below["2.0"], below["4.0"], below["+Inf"]) == ("0.0", "1.0", "1.0")
    assert 'voxserve_codec_batch_size_sum{lane="background",model="mini",replica="0"} 32.0' in text
