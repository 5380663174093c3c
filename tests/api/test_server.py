"""What ends the API process before it serves anything."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest


def run(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "voxserve.api.server", str(file)],
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_unknown_model(tmp_path: Path) -> None:
    ended = run(tmp_path, "model: no-such-model\napi: {port: 0}")
    assert ended.returncode == 2
    assert "no-such-model" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("host", ["127.0.0.1"])
def test_port_in_use(tmp_path: Path, host: str) -> None:
    with socket.create_server((host, 0)) as taken:
        ended = run(tmp_path, f"api: {{host: {host}, port: {taken.getsockname()[1]}}}")
    assert ended.returncode == 1
    assert "cannot listen" in ended.stderr
