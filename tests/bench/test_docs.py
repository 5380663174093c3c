"""Every command in the guide has the options that the guide gives it."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from voxserve.cli.app import app

GUIDE = Path(__file__).parents[2] / "docs" / "benchmarking.md"
COMMANDS = [
    line.strip()
    for block in re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]


def test_guide_shows_every_kind_of_command() -> None:
    shown = {" ".join(command.split()[:3]) for command in COMMANDS}
    kinds = (
        "serve",
        "plot",
        "client",
        "offline",
        "quality",
        "simulate",
        "compare",
        "sweep",
        "soak",
        "timeline",
    )
    assert {f"voxserve bench {kind}" for kind in kinds} <= shown


@pytest.mark.parametrize("line", COMMANDS)
def test_command_is_understood(line: str) -> None:
    program, *words = shlex.split(line)
    assert program == "voxserve"
    # Options are parsed before the help is shown, so an unknown one is still an error.
    run = CliRunner().invoke(app, [*words, "--help"])
    assert run.exit_code == 0, run.output


def test_unknown_option_would_be_found() -> None:
    assert CliRunner().invoke(app, ["bench", "serve", "--nope", "1", "--help"]).exit_code == 2
