"""The container file and the systemd unit name only what there is. Neither is run here."""

import json
import os
import re
from pathlib import Path

import pytest

from voxserve.config import load_config

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
UNIT = (ROOT / "deploy" / "voxserve.service").read_text()
SETTING = re.compile(r"\b(VOXSERVE_\w+)=(\S+)")


@pytest.mark.parametrize("text", [DOCKERFILE, UNIT], ids=["Dockerfile", "unit"])
def test_every_variable_is_a_setting(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("VOXSERVE_")]:
        monkeypatch.delenv(name)
    settings = SETTING.findall(text)
    assert settings
    for name, value in settings:
        monkeypatch.setenv(name, value)
    given = load_config().model_dump(exclude_unset=True)["api"]
    assert str(given["voices_dir"]) == "/var/lib/voxserve/voices"
    assert len(given) == len(settings)


def test_it_does_not_run_as_root_and_is_asked_whether_it_is_ready() -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.M)
    assert "0" not in user and f"--uid {user[0]} " in DOCKERFILE
    (check,) = re.findall(r"^HEALTHCHECK .*?CMD\s+(\[.*\])$", DOCKERFILE, re.M)
    program, flag, script = json.loads(check)
    assert (program, flag) == ("python", "-c")
    compile(script, "healthcheck", "exec")
    assert f":{load_config().api.port}/ready" in script
    assert f"EXPOSE {load_config().api.port}" in DOCKERFILE
    assert json.loads(re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.M)[0]) == [
        "voxserve",
        "serve",
    ]


def test_the_build_is_given_all_that_the_wheel_needs() -> None:
    left_out = {line.strip("/") for line in (ROOT / ".dockerignore").read_text().split()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "voxserve", "models", "kernels"}
    assert all((ROOT / name).exists() for name in needed)
    assert not needed & left_out
    assert {".git", ".venv"} <= left_out
    for extra in re.findall(r"EXTRA=\[(.*)\]", DOCKERFILE)[0].split(","):
        assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(), re.M)


def test_the_unit_starts_what_the_package_installs() -> None:
    assert "ExecStart=/opt/voxserve/bin/voxserve serve " in UNIT
    drain_s = load_config().api.drain_s
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.M)
    assert int(stop_s) > drain_s
