"""A frozen prediction beside a measurement: figures, doubts, verdict."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tests.bench.profiles import round_profile, split_profile
from tests.bench.test_sweep import measured
from voxserve.bench import profile_file, result
from voxserve.bench.comparison import compare, lines
from voxserve.bench.result import Result
from voxserve.cli.app import app
from voxserve.errors import InvalidRequestError


def _predicted(met: dict[float, int], made_at: str = "2026-01-01T00:00:00+00:00") -> Result:
    made = measured("tiny", met)
    server = {"profile": {"sha256": "0123456789abcdef0123"}}
    return msgspec.structs.replace(made, kind="simulate", made_at=made_at, server=server)


# Of 20 requests a rate: the line falls through 90 % half way between the two.
MEASURED = measured("tiny", {8: 20, 10: 16})


def test_capacities_are_compared_where_a_line_crosses_the_goal() -> None:
    found = compare(_predicted({8: 20, 9: 20, 10: 16}), MEASURED)
    main = found.pairs[0]
    assert (main.goal, main.interpolated) == (0.9, True)
    assert main.predicted == pytest.approx(9.5)
    assert main.measured == pytest.approx(9.0)
    assert main.error == pytest.approx(0.5 / 9.0)
    assert found.holds(0.15) and not found.holds(0.05)


def test_without_a_crossing_the_tested_rates_count() -> None:
    found = compare(_predicted({8: 20, 12: 20}), MEASURED)
    assert (found.pairs[0].predicted, found.pairs[0].measured) == (12, 8)
    assert not found.pairs[0].interpolated
    assert not found.holds()


def test_lines_say_both_figures_and_the_rates_in_common() -> None:
    predicted = _predicted({8: 20, 10: 18})
    text = "\n".join(lines(compare(predicted, MEASURED), predicted, MEASURED, 0.15))
    assert "from profile 0123456789abcdef…" in text
    assert "at 10 req/s: 90.0 % predicted, 80.0 % measured; TTFA p50 100 and 100 ms" in text
    assert "capacity at 90.0 %: 10 predicted, 8 measured, +25.0 % (highest tested rate)" in text
    assert "does not hold" in text


@pytest.mark.parametrize(
    ("changed", "doubt"),
    [
        ({"made_at": "2099-01-01T00:00:00+00:00"}, "made after the measurement"),
        ({"load": MEASURED.load | {"slo_ms": 500}}, "500 ms against 200 ms"),
        (
            {"texts": msgspec.structs.replace(MEASURED.texts, sha256="x", name="other")},
            "other against libritts",
        ),
        ({"target": MEASURED.target | {"force_length": False}}, "in one of them alone"),
    ],
)
def test_unequal_terms_are_doubts(changed: dict[str, object], doubt: str) -> None:
    predicted = msgspec.structs.replace(_predicted({8: 20, 10: 16}), **changed)
    found = compare(predicted, MEASURED)
    assert any(doubt in told for told in found.doubts)
    assert not found.holds()


def test_what_is_no_prediction_is_named() -> None:
    with pytest.raises(InvalidRequestError, match="is no prediction, it is serve"):
        compare(MEASURED, MEASURED)
    with pytest.raises(InvalidRequestError, match="is no measurement, it is simulate"):
        compare(_predicted({8: 20}), _predicted({8: 20}))


def test_prediction_is_frozen_by_the_command_and_compared_by_another(tmp_path: Path) -> None:
    profile_file.write(split_profile(), tmp_path / "profile.json")
    command = ["bench", "simulate", str(tmp_path / "profile.json"), "--near", "8", "--tests", "5"]
    command += ["--window", "20", "--codec-sms", "48", "--gap-ms", "2"]
    command += ["--json", str(tmp_path / "predicted.json")]
    run = CliRunner().invoke(app, command)
    assert run.exit_code == 0, run.output
    frozen = result.read(tmp_path / "predicted.json")
    assert frozen.server["codec_sms"] == 48 and frozen.server["gap_s"] == 0.002
    assert len(frozen.points) == 5
    # The measurement says what was predicted.
    points = [msgspec.structs.replace(point) for point in frozen.points]
    later = {"kind": "serve", "made_at": "2099-01-01T00:00:00+00:00", "points": points}
    result.write(msgspec.structs.replace(frozen, **later), tmp_path / "measured.json")
    files = [str(tmp_path / "predicted.json"), str(tmp_path / "measured.json")]
    run = CliRunner().invoke(app, ["bench", "compare", *files, "--json", str(tmp_path / "c.json")])
    assert run.exit_code == 0, run.output
    assert "+0.0 %" in run.output
    assert (tmp_path / "c.json").exists()
    run = CliRunner().invoke(app, ["bench", "compare", files[0], files[0]])
    assert run.exit_code != 0


def test_round_profile_has_no_other_split(tmp_path: Path) -> None:
    profile_file.write(round_profile(), tmp_path / "profile.json")
    command = ["bench", "simulate", str(tmp_path / "profile.json"), "--codec-sms", "16"]
    run = CliRunner().invoke(app, command)
    assert run.exit_code != 0
    assert "tried: none" in run.output + str(run.exception)
