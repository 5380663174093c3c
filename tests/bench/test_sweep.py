"""Ablations by name, the report of a sweep, and a measurement of a real server of our own."""

import asyncio
import itertools
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from tests.bench.test_statistics import GOOD, REFUSED
from voxserve.bench import ablation_run, ablations, workloads
from voxserve.bench.campaign import measure
from voxserve.bench.display import WIDE_COLUMNS, table
from voxserve.bench.ladder import Ladder
from voxserve.bench.load import Load
from voxserve.bench.metrics import compare
from voxserve.bench.report import write_report
from voxserve.bench.result import Result, result, write
from voxserve.bench.server import running
from voxserve.bench.statistics import Window, figures
from voxserve.bench.targets import Target
from voxserve.cli.app import app
from voxserve.config import load_config
from voxserve.errors import InvalidRequestError, UnavailableError

TARGET = Target("voxserve", "http://127.0.0.1:1", force_length=True)
TEXTS = workloads.load("libritts")


def nested(settings: dict[str, str]) -> dict[str, Any]:
    """Dotted settings as the configuration nests them."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        found.setdefault(section, {})[name] = yaml.safe_load(value)
    return found


def _searched(label: str, met: dict[float, int]) -> Result:
    made = measured(label, met)
    return msgspec.structs.replace(made, load=made.load | {"near": [4.0, 2]})


def measured(label: str, met: dict[float, int]) -> Result:
    """Of 20 requests a rate, so many of which met the target."""
    windows = [
        Window(rate, 1, 10.0, [GOOD] * good + [REFUSED] * (20 - good)) for rate, good in met.items()
    ]
    load = Load(rates=tuple(met), seeds=(1,), window_s=10.0)
    points = [figures([window], load.slo_ms) for window in windows]
    return result(
        "serve",
        label,
        TARGET,
        TEXTS,
        load,
        points,
        windows,
        command=["bench", "sweep", "tiny"],
        server={"version": {"model": "tiny"}},
        metrics={},
    )


def test_report_compares_at_the_highest_rate_of_all(tmp_path: Path) -> None:
    results = [
        measured(ablations.BASELINE, {1: 20, 2: 20, 4: 15}),
        measured("no urgent lane", {1: 20, 2: 10}),
    ]
    text = write_report(results, tmp_path).read_text()
    assert text.startswith("# tiny under load\n")
    assert "voxserve bench sweep tiny" in text
    assert "| 4 | 20 | 75.0 % (53–89) | 100 / 100 / 100 | 0.0 % | 5 | 0 | 1.50 |" in text
    assert "attained at 2 req/s" in text
    assert "| as configured | 2 | 2 | 100.0 % | 100 | 0.0 % | 0 | 2.00 | yes |" in text
    assert "| no urgent lane | 1 | 1 | 50.0 % | 100 | 0.0 % | 10 | 1.00 | yes |" in text
    assert "Lengths were forced" in text
    assert (tmp_path / "0-rates.png").stat().st_size > 10_000


def test_report_draws_few_curves_in_a_picture(tmp_path: Path) -> None:
    results = [measured(f"number {number}", {1: 20}) for number in range(8)]
    text = write_report(results, tmp_path).read_text()
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["0-rates.png", "1-rates.png"]
    assert text.count("](") == 2


def test_report_says_what_is_invalid(tmp_path: Path) -> None:
    late = msgspec.structs.replace(measured("late", {1: 20}), valid=False)
    text = write_report([late], tmp_path).read_text()
    assert "not valid: late" in text
    assert "One switch" not in text


def test_switches_by_name() -> None:
    found = ablations.chosen(["no urgent lane", "few:engine.slots=4,engine.threads=2"])
    assert [(one.name, one.settings) for one in found] == [
        ("no urgent lane", ("policy.urgent_lane=false",)),
        ("few", ("engine.slots=4", "engine.threads=2")),
    ]
    with pytest.raises(InvalidRequestError, match="no urgent lane, no background lane"):
        ablations.chosen(["no lanes"])


def test_ladder_adds_one_mechanism_at_a_time() -> None:
    rungs = ablations.ladder()
    assert [rung.name for rung in rungs] == [name for name, _, _ in ablations.MECHANISMS]
    assert rungs[-1].settings == ()
    for below, above in itertools.pairwise(rungs):
        assert set(above.settings) < set(below.settings)
    for rung in rungs:
        settings = dict(setting.split("=") for setting in rung.settings)
        load_config(None, nested(settings))


def test_searched_capacities_are_drawn_and_kept(tmp_path: Path) -> None:
    results = [_searched("synchronous loop", {4: 20, 8: 10}), _searched("lanes", {8: 20, 10: 17})]
    text = write_report(results, tmp_path, {"fused": "no memory"}).read_text()
    assert "| synchronous loop | 4 | 4 | 8 | 4.8 | 100 / 100 |" in text
    assert "| lanes | 8 | 8 | 10 | 9.3 |" in text
    assert "fused: not measured, no memory" in text
    found = msgspec.json.decode((tmp_path / "ladder.json").read_bytes(), type=Ladder)
    assert [step.tested for step in found.steps] == [[(4, 1.0), (8, 0.5)], [(8, 1.0), (10, 0.85)]]
    assert (tmp_path / "ladder.png").stat().st_size > 10_000


def test_report_can_be_written_later(tmp_path: Path) -> None:
    write(_searched("synchronous loop", {4: 20, 8: 10}), tmp_path / "00.json")
    write(_searched("lanes", {8: 20, 10: 17}), tmp_path / "02.json")
    (tmp_path / ablation_run.FAILURES).write_text('{"fused": "no memory"}')
    run = CliRunner().invoke(app, ["bench", "report", str(tmp_path)])
    assert run.exit_code == 0, run.output
    text = (tmp_path / "report.md").read_text()
    assert text.index("| synchronous loop |") < text.index("| lanes |")
    assert "fused: not measured, no memory" in text
    empty = CliRunner().invoke(app, ["bench", "report", str(tmp_path / "nowhere")])
    assert empty.exit_code == 2


def test_variants_are_measured_on_servers_of_their_own(tmp_path: Path) -> None:
    load = Load(
        rates=(),
        near=(2.0, 1),
        seeds=(1,),
        window_s=1.0,
        warm_ups=1,
        burst=0,
        slo_ms=10_000,
    )
    variants = [
        ablations.Variant("as configured"),
        ablations.Variant("broken", ("no.such=1",)),
        ablations.Variant("few slots", ("engine.slots=2",), factor=1.5),
    ]
    plan = ablation_run.Plan(
        arguments=["tiny", "--slots", "4", "--set", "policy.refuse=false"],
        target=TARGET,
        workload=TEXTS,
        load=load,
        variants=variants,
        command=[],
        start_s=90.0,
        together=True,
        minutes=5.0,
    )
    outcome = asyncio.run(ablation_run.measure_all(plan, tmp_path))
    assert [made.label for made in outcome.results] == ["as configured", "few slots"]
    assert outcome.results[1].settings == ["engine.slots=2"]
    # Begins where the one before came to, times what is expected of it.
    assert outcome.results[1].points[0].rate == 1.5 * outcome.results[0].capacity[0].rate
    assert "no" in outcome.failures["broken"]


def test_real_server_counts_what_the_client_saw(tmp_path: Path) -> None:
    load = Load(rates=(3.0,), seeds=(1,), window_s=2.0, warm_ups=1, burst=2, slo_ms=10_000)

    async def ran() -> Result:
        arguments = ["tiny", "--slots", "4", "--set", "policy.refuse=false"]
        async with running(arguments, tmp_path / "log", start_s=90.0) as url:
            return await measure(replace(TARGET, url=url), TEXTS, load, {}, label="x", command=[])

    found = asyncio.run(ran())
    assert found.kind == "serve"
    assert found.server["version"]["model"] == "tiny"
    (point,) = found.points
    assert point.requests == point.completed > 0
    counted = {comparison.name: comparison for comparison in compare(found.metrics, found.points)}
    assert counted["completed"].server == point.completed
    assert counted["refused"].server == 0
    assert counted["audio, s"].agrees
    assert counted["mean TTFA, s"].server <= counted["mean TTFA, s"].client


def test_server_that_does_not_start_is_told_with_its_reason(tmp_path: Path) -> None:
    async def start() -> None:
        async with running(["--set", "no.such=1"], tmp_path / "log", start_s=30.0):
            pass

    with pytest.raises(UnavailableError, match=r"ended at its start: .*no"):
        asyncio.run(start())


def test_table_fits_its_terminal() -> None:
    found = measured("x", {1: 20, 2: 20, 100: 15})
    for narrow, columns in [(True, 80), (False, WIDE_COLUMNS)]:
        console = Console(width=columns, record=True, file=StringIO())
        console.print(table(found, narrow))
        text = console.export_text()
        assert "…" not in text
        assert "75.0 %" in text
