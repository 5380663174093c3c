"""Figures and capacities from records that are written out here."""

import msgspec
import pytest

from voxserve.bench.records import Record
from voxserve.bench.statistics import Figures, Window, capacity, figures, wilson

GOOD = Record(
    index=0,
    id="a",
    words=5,
    due_s=0.0,
    late_s=0.001,
    outcome="completed",
    status=200,
    error="",
    ttfa_s=0.1,
    end_s=2.0,
    audio_s=4.0,
    stall_s=0.0,
    stops=0,
    chunks=5,
    stub=False,
)
REFUSED = msgspec.structs.replace(
    GOOD, outcome="refused", status=503, error="overloaded", ttfa_s=None, audio_s=0.0
)


def _change(**changes: object) -> Record:
    return msgspec.structs.replace(GOOD, **changes)


def _figures(records: list[Record], window_s: float = 10.0) -> Figures:
    return figures([Window(2.0, 1, window_s, records)], slo_ms=200)


def test_every_way_to_miss_counts() -> None:
    records = [
        GOOD,
        _change(ttfa_s=0.2),
        _change(ttfa_s=0.21),
        _change(ttfa_s=0.9),
        _change(stall_s=0.0099),
        _change(stall_s=0.010),
        _change(outcome="failed", error="cut off before its end"),
        REFUSED,
    ]
    found = _figures(records)
    assert found.attainment == {200: 3 / 8, 250: 4 / 8, 500: 4 / 8, 1000: 5 / 8}
    assert found.goodput == pytest.approx(0.3)
    assert (found.completed, found.refused, found.failed) == (6, 1, 1)
    assert found.stalled == pytest.approx(1 / 7)
    assert found.within_1_s == pytest.approx(7 / 8)
    assert found.errors == {"200 cut off before its end": 1, "503 overloaded": 1}


def test_own_target_is_reported_beside_the_usual_ones() -> None:
    found = figures([Window(1.0, 1, 10.0, [_change(ttfa_s=0.06)])], slo_ms=50)
    assert list(found.attainment) == [50, 200, 250, 500, 1000]
    assert found.attainment[50] == 0.0
    assert found.goodput == 0.0


def test_percentiles_leave_out_those_without_audio() -> None:
    records = [_change(ttfa_s=0.001 * i) for i in range(1, 102)] + [REFUSED] * 50
    found = _figures(records)
    assert found.ttfa_p50_s == pytest.approx(0.051)
    assert found.ttfa_p99_s == pytest.approx(0.100)
    assert _figures([REFUSED]).ttfa_p99_s is None


def test_audio_is_counted_to_the_last_byte() -> None:
    found = _figures([GOOD, _change(due_s=9.0, end_s=10.999)])
    assert found.audio_rate == pytest.approx(8.0 / 20.0)
    assert _figures([GOOD]).audio_rate == pytest.approx(4.0 / 10.0)


def test_late_client_makes_a_rate_invalid() -> None:
    in_time = [GOOD] * 999
    assert _figures([*in_time, _change(late_s=0.5)]).valid
    assert not _figures([GOOD] * 9 + [_change(late_s=0.1)]).valid


def test_seeds_are_pooled() -> None:
    first = Window(2.0, 1, 10.0, [GOOD] * 19 + [REFUSED])
    second = Window(2.0, 2, 10.0, [GOOD] * 10)
    found = figures([first, second], slo_ms=200)
    assert found.seeds == [1, 2]
    assert found.attainment[200] == pytest.approx(29 / 30)
    assert found.goodput == pytest.approx(29 / 20)
    assert found.sent_rate == pytest.approx(1.5)


def _point(rate: float, met: int) -> Figures:
    records = [GOOD] * met + [REFUSED] * (100 - met)
    return figures([Window(rate, 1, 10.0, records)], slo_ms=200)


@pytest.mark.parametrize(
    ("points", "goal", "rate", "at_least", "misses_at"),
    [
        ([(4, 100), (8, 95), (12, 50)], 0.9, 8, False, 12),
        ([(4, 100), (8, 95), (12, 50)], 0.99, 4, False, 8),
        # A rate that does well above one that does not is luck.
        ([(4, 100), (8, 80), (12, 100)], 0.9, 4, False, 8),
        ([(4, 89)], 0.9, 0, False, 4),
        ([(8, 99), (4, 100)], 0.9, 8, True, None),
    ],
)
def test_capacity(
    points: list[tuple[float, int]],
    goal: float,
    rate: float,
    at_least: bool,
    misses_at: float | None,
) -> None:
    found = capacity([_point(*point) for point in points], goal)
    assert (found.rate, found.at_least, found.misses_at) == (rate, at_least, misses_at)


def test_interval_of_a_share() -> None:
    low, high = wilson(90, 100)
    assert [low, high] == pytest.approx([0.8256, 0.9448], abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def test_who_left_is_neither_attained_nor_missed() -> None:
    left = _change(outcome="left", ttfa_s=0.9, audio_s=1.5)
    found = _figures([GOOD, GOOD, REFUSED, left])
    assert (found.requests, found.left, found.completed) == (3, 1, 2)
    assert found.attainment[200] == pytest.approx(2 / 3)
    assert found.ttfa_p99_s == pytest.approx(0.1)
    assert (found.audio_s, found.audio_left_s) == (8.0, 1.5)
    assert found.sent_rate == pytest.approx(0.4)
    assert found.errors == {"503 overloaded": 1}


def test_slowest_refusal_is_told() -> None:
    refusals = [msgspec.structs.replace(REFUSED, end_s=0.01 * i) for i in range(101)]
    found = _figures([GOOD, *refusals])
    assert found.refused_max_s == pytest.approx(1.0)
    assert found.refused_p99_s == pytest.approx(0.99)
    assert _figures([GOOD]).refused_max_s is None
