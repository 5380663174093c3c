"""What a start takes from a profile."""

from pathlib import Path

import pytest

from tests.bench.profiles import round_profile
from tests.engine.test_process import process
from voxserve.bench import profile_file
from voxserve.engine.start import profiled
from voxserve.scheduler.launches import Lane, Stage


def test_a_profile_tells_run_times(tmp_path: Path) -> None:
    assert profiled(None, "tiny") == {}
    profile_file.write(round_profile(), tmp_path / "profile.json")
    times = profiled(tmp_path / "profile.json", "round")
    assert times[Lane.LM, Stage.DECODE, 8, 0] == 0.02
    assert times[Lane.URGENT, Stage.CODEC, 4, 10] == 0.008


def test_a_profile_of_another_model_is_refused(tmp_path: Path) -> None:
    profile_file.write(round_profile(), tmp_path / "profile.json")
    with pytest.raises(ValueError, match="is of round, and tiny is served"):
        profiled(tmp_path / "profile.json", "tiny")
    with pytest.raises(ValueError, match=r"engine\.profile: .*nowhere\.json is not a profile"):
        profiled(tmp_path / "nowhere.json", "tiny")


def test_an_engine_says_what_is_wrong_with_its_profile(tmp_path: Path) -> None:
    with process({"profile": str(tmp_path / "nowhere.json")}) as (_, running):
        assert running.stderr is not None
        assert "nowhere.json is not a profile" in running.stderr.read()
        assert running.wait() == 2
