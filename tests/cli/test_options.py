from pathlib import Path

import pytest
import typer

from voxserve.cli.options import configure
from voxserve.config import Config


def test_flags_that_were_not_given_leave_the_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("engine: {slots: 3, threads: 2}")
    config = configure(file, None, {"engine.slots": 5, "engine.threads": None, "model": None})
    assert (config.engine.slots, config.engine.threads, config.model) == (5, 2, Config().model)


def test_a_flag_that_says_no_counts_as_given(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("api: {strict_fields: true, port: 5}")
    config = configure(file, None, {"api.strict_fields": False, "api.port": 0})
    assert (config.api.strict_fields, config.api.port) == (False, 0)


def test_settings_are_typed_and_nested() -> None:
    settings = ["policy.overlap=false", "policy.ramp=1", "api.voice_alias={alloy: ryan}", "model=x"]
    config = configure(None, settings, {})
    assert (config.policy.overlap, config.policy.ramp) == (False, 1)
    assert (config.api.voice_alias, config.model) == ({"alloy": "ryan"}, "x")


def test_flags_win_over_settings() -> None:
    assert configure(None, ["api.port=1"], {"api.port": 2}).api.port == 2


def test_a_value_may_hold_an_equals_sign() -> None:
    assert configure(None, ["model=a=b"], {}).model == "a=b"


def test_a_wrong_value_ends_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as raised:
        configure(None, ["engine.slots=many"], {})
    assert raised.value.exit_code == 2
    assert capsys.readouterr().err.startswith("voxserve: engine.slots is 'many':")
