"""A whole measurement with real client processes against a scripted stub."""

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from voxserve.bench import result, workloads
from voxserve.bench.campaign import measure, measure_offline
from voxserve.bench.display import remarks, table, title
from voxserve.bench.load import Load
from voxserve.bench.plot import plot
from voxserve.bench.result import Result
from voxserve.bench.stub import even, stubs
from voxserve.bench.targets import Target
from voxserve.errors import UnavailableError

LOAD = Load(rates=(40.0, 20.0), seeds=(1, 2), window_s=0.5, processes=2, warm_ups=1, burst=4)


def _measure(url: str, load: Load, requests: Path | None = None) -> Result:
    target, texts = Target("voxserve", url), workloads.load("libritts")
    return asyncio.run(
        measure(target, texts, load, {}, label="x", command=["bench"], requests=requests)
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    requests = tmp_path_factory.mktemp("bench") / "requests.jsonl"
    with stubs(even(0.05, 0.05, 0.8, 3), 2) as url:
        return _measure(url, LOAD, requests), requests


def test_rates_are_pooled_over_seeds(made: tuple[Result, Path]) -> None:
    found = made[0]
    assert [point.rate for point in found.points] == [20.0, 40.0]
    assert [(window.rate, window.seeds) for window in found.windows] == [
        (20.0, [1]),
        (20.0, [2]),
        (40.0, [1]),
        (40.0, [2]),
    ]
    for point in found.points:
        assert point.completed == point.requests
        assert point.requests == sum(
            window.requests for window in found.windows if window.rate == point.rate
        )
        assert point.audio_s == pytest.approx(2.4 * point.requests)


def test_stub_is_never_called_a_server(made: tuple[Result, Path]) -> None:
    found = made[0]
    assert found.kind == "stub"
    assert "no server" in title(found)
    assert not [line for line in remarks(found) if "capacity" in line]


def test_result_can_be_read_back_and_drawn(made: tuple[Result, Path], tmp_path: Path) -> None:
    found, requests = made
    result.write(found, tmp_path / "result.json")
    assert result.read(tmp_path / "result.json") == found
    assert table(found).row_count == 2
    plot([found, found], tmp_path / "result.png")
    assert (tmp_path / "result.png").stat().st_size > 10_000
    lines = requests.read_text().splitlines()
    assert len(lines) == sum(point.requests for point in found.points)


def test_result_says_how_to_repeat_it(made: tuple[Result, Path]) -> None:
    found = made[0]
    assert found.texts.sha256 == workloads.load("libritts").sha256
    assert found.load["seeds"] == [1, 2]
    assert found.load["window_s"] == 0.5
    assert found.machine["python"]
    assert found.target["url"].startswith("http://127.0.0.1:")


def test_sweep_ends_after_a_rate_where_most_get_no_audio_in_time() -> None:
    load = Load(rates=(10, 20, 30), seeds=(1,), window_s=0.3, warm_ups=0, burst=0)
    with stubs(even(1.1, 0.05, 0.8, 3), 1) as url:
        found = _measure(url, load)
    assert [point.rate for point in found.points] == [10]
    assert found.points[0].attainment[1000] == 0.0


def test_bisection_closes_in() -> None:
    load = Load(
        rates=(), bisect=(10, 80, 3), seeds=(1,), window_s=0.2, warm_ups=0, burst=0, slo_ms=1000
    )
    with stubs(even(0.01, 0.05, 0.8, 3), 1) as url:
        found = _measure(url, load)
    assert [point.rate for point in found.points] == [28.3, 47.6, 61.7]
    assert found.capacity[0].at_least


def test_all_at_once() -> None:
    load = Load(rates=(), seeds=(1,), window_s=0, processes=2, warm_ups=0, burst=0)
    target = Target("voxserve", "", buffered=True)
    assert target.body("Hello.", 1)["stream"] is False
    with stubs(even(0.05, 0.05, 0.8, 3), 1) as url:
        found = asyncio.run(
            measure_offline(
                replace(target, url=url),
                workloads.load("libritts"),
                load,
                {},
                label="x",
                command=[],
                requests=12,
                in_flight=4,
            )
        )
    (point,) = found.points
    assert point.completed == 12
    assert point.audio_s == pytest.approx(12 * 2.4)
    # Three rounds of four, each 0.15 s by the script.
    assert point.window_s >= 0.45
    assert point.audio_rate == pytest.approx(point.audio_s / point.window_s)


def test_refusals_and_leavers_have_lines_of_their_own() -> None:
    load = msgspec.structs.replace(LOAD, rates=(40.0,), leave=0.7)
    with stubs(even(0.05, 0.3, 0.8, 8), 1) as url:
        found = _measure(url, load)
    (point,) = found.points
    assert point.left and point.completed == point.requests
    assert f"40 req/s: {point.left} clients left before the end" in "\n".join(remarks(found))
    point = msgspec.structs.replace(point, refused=3, refused_p99_s=0.4, refused_max_s=0.41)
    told = remarks(msgspec.structs.replace(found, points=[point]))
    line = "40 req/s: 3 refused, each within 0.410 s of its sending, 99 % within 0.400 s"
    assert line in told
    simulated = msgspec.structs.replace(found, kind="simulate", points=[point])
    assert line not in remarks(simulated)


def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(UnavailableError, match="no warm-up request completed at http"):
        _measure("http://127.0.0.1:9", LOAD)
