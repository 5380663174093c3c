from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from voxserve.cli import check


def test_it_names_machine_model_files_and_memory(voxserve: Run) -> None:
    run = voxserve("check", "tiny", "--set", "engine.slots=3")
    assert run.returncode == 0, run.stderr
    for text in ("torch 2.", "tiny", "Apache-2.0", "24000 Hz", "config.json", "3 slots", "in all"):
        assert text in run.stdout


def test_a_device_of_another_kind_is_an_error(voxserve: Run) -> None:
    run = voxserve("check", "--device", "tpu")
    assert run.returncode == 2
    assert run.stderr.startswith("voxserve: engine.device is 'tpu'")


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a program on the PATH that prints the given lines, as the driver's own does."""

    def install(lines: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return install


def test_every_gpu_gets_a_line(nvidia_smi: Callable[[str], None]) -> None:
    nvidia_smi("NVIDIA H200, 143771 MiB, 570.86.15\nNVIDIA A10, 23028 MiB, 535.54.03")
    assert list(check._gpus()) == [
        ("GPU", "NVIDIA H200, 143771 MiB, driver 570.86.15, green contexts: yes"),
        (
            "GPU",
            "NVIDIA A10, 23028 MiB, driver 535.54.03, "
            "green contexts: no, they need driver 550 or newer",
        ),
    ]


def test_sizes_are_readable() -> None:
    shown = [check._size(n) for n in (1, 1023, 1536, 5 * 2**20, 3 * 2**30, 2**42)]
    assert shown == ["1 B", "1023 B", "1.5 KiB", "5 MiB", "3.0 GiB", "4096.0 GiB"]
