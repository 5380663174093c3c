"""What the server counted beside what the client saw."""

import msgspec
import pytest

from tests.bench.test_statistics import GOOD, REFUSED
from voxserve.bench.metrics import changes, compare
from voxserve.bench.statistics import Window, figures

BEFORE = b"""# HELP voxserve_slo_total Outcomes
voxserve_slo_total{model="tiny",outcome="met"} 4.0
voxserve_slo_created{model="tiny",outcome="met"} 1.79e+09
voxserve_lane_busy_ratio{lane="lm"} 0.3
"""
AFTER = b"""# HELP voxserve_slo_total Outcomes
voxserve_slo_total{model="tiny",outcome="met"} 103.0
voxserve_slo_total{model="tiny",outcome="rejected"} 2.0
voxserve_slo_created{model="tiny",outcome="met"} 1.79e+09
voxserve_e2e_seconds_count{model="tiny"} 99.0
voxserve_audio_seconds_total{model="tiny"} 396.0
voxserve_ttfa_seconds_count{model="tiny"} 99.0
voxserve_ttfa_seconds_sum{model="tiny"} 9.4
voxserve_ttfa_seconds_bucket{le="0.2",model="tiny"} 99.0
voxserve_lane_busy_ratio{lane="lm"} 0.9
"""


def test_counters_that_moved() -> None:
    moved = changes(BEFORE, AFTER)
    assert moved['voxserve_slo_total{model="tiny",outcome="met"}'] == 99.0
    assert not [name for name in moved if "ratio" in name or "bucket" in name or "created" in name]
    assert changes(None, AFTER) == {}


def test_same_story_agrees() -> None:
    point = figures([Window(10.0, 1, 10.0, [GOOD] * 99 + [REFUSED] * 2)], slo_ms=200)
    found = compare(changes(BEFORE, AFTER), [point])
    assert [comparison.name for comparison in found] == [
        "completed",
        "refused",
        "SLO met",
        "audio, s",
        "mean TTFA, s",
    ]
    assert all(comparison.agrees for comparison in found)


def test_another_story_does_not() -> None:
    point = figures([Window(10.0, 1, 10.0, [GOOD] * 90 + [REFUSED] * 11)], slo_ms=200)
    found = {c.name: c.agrees for c in compare(changes(BEFORE, AFTER), [point])}
    assert found == {
        "completed": False,
        "refused": False,
        "SLO met": False,
        "audio, s": False,
        "mean TTFA, s": True,
    }


def test_servers_that_count_otherwise_are_not_compared() -> None:
    point = figures([Window(10.0, 1, 10.0, [GOOD])], slo_ms=200)
    assert compare({"requests_total": 3.0}, [point]) == []


def test_who_left_heard_audio_that_the_server_counts() -> None:
    left = msgspec.structs.replace(GOOD, outcome="left", audio_s=2.0, ttfa_s=0.85)
    deaf = msgspec.structs.replace(left, audio_s=0.0, ttfa_s=None)
    records = [GOOD] * 98 + [REFUSED] * 2 + [left] * 2 + [deaf]
    point = figures([Window(10.0, 1, 10.0, records)], slo_ms=200)
    found = {c.name: (c.client, c.agrees) for c in compare(changes(BEFORE, AFTER), [point])}
    assert found["audio, s"] == (396.0, True)
    assert found["completed"] == (98, True)
    assert found["refused"] == (2, True)
    assert found["mean TTFA, s"][0] == pytest.approx((98 * 0.1 + 2 * 0.85) / 100)


def test_request_that_barely_missed_may_count_as_met_there() -> None:
    late = msgspec.structs.replace(GOOD, ttfa_s=0.2095)
    later = msgspec.structs.replace(GOOD, ttfa_s=0.2105)
    for missed, barely in [([late] * 8, True), ([later] * 8, False)]:
        records = [GOOD] * 91 + missed + [REFUSED] * 2
        point = figures([Window(10.0, 1, 10.0, records)], slo_ms=200)
        found = {c.name: c.agrees for c in compare(changes(BEFORE, AFTER), [point])}
        assert found["SLO met"] is barely
