import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The program to start, in an empty folder and without settings from outside."""
    for name in [name for name in os.environ if name.startswith("VOXSERVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return [sys.executable, "-m", "voxserve"]


@pytest.fixture
def voxserve(command: list[str]) -> Run:
    """`voxserve("say", "hello")` runs the command to its end."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, text=True, timeout=60
        )

    return run
