"""LiveKit, Pipecat and curl against a real server: `make clients`. Not part of `make test`.

Each framework runs in an environment of its own, which is made beside this one if it is missing.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.api.server_process import ServerProcess

HERE = Path(__file__).parent
ENVIRONMENTS = Path(sys.prefix).parent / ".clients"
INSTALL_S, RUN_S = 900, 120
TEXT = "Hello there. It is a fine day."

pytestmark = pytest.mark.timeout(INSTALL_S + RUN_S)


def python_with(name: str) -> Path:
    """The interpreter of the environment for `NAME.txt`, made anew when that file has changed."""
    wanted = (HERE / f"{name}.txt").read_text()
    folder = ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "-r", str(HERE / f"{name}.txt")]
        subprocess.run(pip, check=True, timeout=INSTALL_S)
        stamp.write_text(wanted)
    return python


def heard_by(name: str, server: ServerProcess) -> Mapping[str, dict[str, Any]]:
    """What NAME_client.py reports, by the way in which it spoke."""
    run = subprocess.run(
        [python_with(name), HERE / f"{name}_client.py", server.url],
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    reports = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {report["way"]: report for report in reports}


def test_livekit(server: ServerProcess) -> None:
    heard = heard_by("livekit", server)
    for way in ("openai", "elevenlabs", "elevenlabs stream", "elevenlabs stream again"):
        assert heard[way]["seconds"] > 1, heard
    assert heard["openai"]["rate"] == 24_000
    assert "ryan" in heard["voices"]["names"]
    server.wait_idle()


def test_pipecat(server: ServerProcess) -> None:
    heard = heard_by("pipecat", server)
    for way in ("openai", "elevenlabs"):
        assert heard[way]["seconds"] > 1 and heard[way]["stopped"], heard
        assert heard[way]["errors"] == []
        assert heard[way]["text"] == TEXT
    server.wait_idle()


def test_curl(server: ServerProcess, tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl")
    body = json.dumps({"input": TEXT})
    for name, options in {
        "plain.mp3": ["-d", body],
        "form.mp3": ["-F", f"input={TEXT}"],
        "eleven.mp3": ["-H", "content-type: application/json", "-d", json.dumps({"text": TEXT})],
    }.items():
        path = "text-to-speech/ryan" if name.startswith("eleven") else "audio/speech"
        file = tmp_path / name
        subprocess.run(
            [curl, "-sSfN", f"{server.url}/v1/{path}", *options, "-o", file], check=True, timeout=60
        )
        assert file.read_bytes()[0] == 0xFF and file.stat().st_size > 4000
