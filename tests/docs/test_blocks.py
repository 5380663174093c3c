"""Blocks of the pages that stand behind `<!-- run -->` work as they are, against a server.

Only its address is put in place of localhost:8000.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.api.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^<!-- run -->\n+```(\w+)\n(.*?)^```$", re.M | re.S)
# curl succeeds on an error status unless told otherwise.
SHELL = 'set -euo pipefail; curl() { command curl -sS --fail-with-body "$@"; }\n'


@dataclass(frozen=True, slots=True)
class Block:
    place: str
    language: str
    code: str


BLOCKS = [
    Block(f"{page.relative_to(ROOT)}-{number}", language, code)
    for page in PAGES
    for number, (language, code) in enumerate(BLOCK.findall(page.read_text()))
]


def test_no_mark_is_without_its_block() -> None:
    marks = sum(page.read_text().count("<!-- run -->") for page in PAGES)
    assert marks == len(BLOCKS) >= 6


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_block_runs(block: Block, server: ServerProcess, tmp_path: Path) -> None:
    code = block.code.replace("localhost:8000", f"127.0.0.1:{server.port}")
    assert code != block.code
    programs = {
        "sh": ["bash", "-c", SHELL + code],
        "python": [sys.executable, "-c", code],
    }
    run = subprocess.run(
        programs[block.language],
        cwd=tmp_path,
        env={**os.environ, "no_proxy": "*", "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    files = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert all(size > 100 for size in files.values()), files
    assert files or run.stdout


def test_every_page_is_in_the_navigation() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    named = set(re.findall(r"[\w/.-]+\.md", str(site["nav"])))
    pages = {file.relative_to(ROOT / "docs").as_posix() for file in PAGES[1:]}
    made = {"reference.md", "decisions.md"}
    assert named - made == {page for page in pages if not page.startswith("adr/")}
