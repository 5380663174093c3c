"""The guide to plug-ins: its code is the toy's, and the toy installs, serves and is heard."""

import os
import re
import subprocess
import sys
import tomllib
import wave
from pathlib import Path

import numpy as np
import pytest

from voxserve.checkpoints import GROUP, find

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "adding-a-model.md").read_text()
TOY = ROOT / "tests" / "toy"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder for the path in which the toy counts as installed, as the guide says."""
    (entries,) = blocks("toml")
    points = tomllib.loads(entries)["project"]["entry-points"]
    metadata = tmp_path / "toy-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in points[GROUP].items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


def test_the_guide_quotes_the_toy() -> None:
    sources = [path.read_text() for path in sorted(TOY.glob("*.py"))]
    quoted = blocks("python")
    assert len(quoted) >= 4
    for block in quoted:
        assert any(block in source for source in sources), block


def test_the_toy_is_about_as_small_as_it_can_be() -> None:
    assert sum(len(path.read_text().splitlines()) for path in TOY.glob("*.py")) < 160


def test_the_toy_is_found_by_its_metadata(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(site)
    plugin, checkpoint = find("toy", dummy=False)
    assert plugin.host(checkpoint).info.name == "toy"
    assert find(str(TOY), dummy=True)[0] is plugin


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of voxserve in an environment where the toy is installed."""
    path = os.pathsep.join([str(site), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "voxserve", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_the_toy_is_heard(site: Path) -> None:
    """Each 50 ms frame is the tone of its letter, without a jump at any chunk's edge."""
    text = "abc xyz, a tune!"
    file = site / "tune.wav"
    said = run(site, "say", "--model", "toy", text, "-o", str(file))
    assert said.returncode == 0, said.stderr
    with wave.open(str(file)) as sound:
        assert sound.getframerate() == 16_000
        audio = np.frombuffer(sound.readframes(sound.getnframes()), np.int16) / 32_767
    notes = [ord(c) - ord("a") + 1 if c.isalpha() else 0 for c in text]
    turns = [220 / 16_000 * 2 ** (note / 12) if note else 0.0 for note in notes]
    expected = 0.5 * np.sin(2 * np.pi * np.cumsum(np.repeat(turns, 800)))
    np.testing.assert_allclose(audio, expected, atol=2 / 32_767)


def test_text_beyond_the_toys_limit_is_spoken_in_parts(site: Path) -> None:
    file = site / "tune.wav"
    said = run(site, "say", "--model", "toy", "do re mi fa so la. " * 40, "-o", str(file))
    assert said.returncode == 0, said.stderr
    with wave.open(str(file)) as sound:
        assert sound.getnframes() > 700 * 800


def test_the_toys_limits_reach_the_user(site: Path) -> None:
    said = run(site, "say", "--model", "toy", "--voice", "nobody", "a", "-o", str(site / "no.wav"))
    assert said.returncode != 0
    assert "nobody" in said.stderr
