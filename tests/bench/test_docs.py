"""Every command in the guide has the options that the guide gives it."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

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
    kinds = ("serve", "plot", "client", "offline", "simulate", "sweep")
    assert {f"voxserve bench {kind}" for kind in kinds} <= shown


@pytest.mark.parametrize("line", COMMANDS)
def test_command_is_understood(line: str) -> None:
    program, *words = shlex.split(line)
    assert program == "voxserve"
    command = get_command(app)
    context = command.make_context(program, words, resilient_parsing=True)
    while hasattr(command, "resolve_command"):
        _, command, words = command.resolve_command(context, words)
        context = command.make_context(command.name, words, parent=context, resilient_parsing=True)
    assert not context.args
