"""What the playground's files are, and that they ask nothing of any other host."""

import re
from pathlib import Path

import pytest

from tests.api.server_process import ServerProcess
from voxserve.api.playground import PATHS

WEB = Path(__file__).parents[2] / "voxserve" / "api" / "web"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


def test_every_file_is_served_and_nothing_else() -> None:
    served = {path.removeprefix("/playground/") for path in PATHS} - {"/playground"}
    assert {file.name for file in WEB.iterdir()} == served | {"index.html", "docs.css"}


@pytest.mark.parametrize("path", sorted(PATHS))
def test_served_with_its_type_and_policy(server: ServerProcess, path: str) -> None:
    answer = server.client.get(path)
    assert answer.status_code == 200
    suffix = Path(path).suffix or ".html"
    assert answer.headers["content-type"] == f"{TYPES[suffix]}; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy
    assert "unsafe" not in policy and "*" not in policy


@pytest.mark.parametrize("file", sorted(WEB.iterdir()), ids=lambda file: file.name)
def test_asks_nothing_of_another_host(file: Path) -> None:
    text = file.read_text()
    assert not re.findall(r"""(?:https?:|["'(]\s*)//[\w.]""", text)
    assert "import(" not in text and "eval(" not in text and "innerHTML" not in text


def test_page_needs_no_inline_code() -> None:
    """The policy would forbid it."""
    page = (WEB / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|<style|\s(?:on\w+|style)=", page)


def test_every_control_has_a_name() -> None:
    page = (WEB / "index.html").read_text()
    labelled = set(re.findall(r'for="([\w-]+)"', page))
    wrapped = set(re.findall(r'<label[^>]*>[^<]*<input id="([\w-]+)"', page))
    controls = set(re.findall(r'<(?:input|select|textarea) id="([\w-]+)"', page))
    assert controls <= labelled | wrapped
    scripts = "".join(file.read_text() for file in WEB.glob("*.js"))
    ids = set(re.findall(r'id="([\w-]+)"', page))
    assert set(re.findall(r'byId\("([\w-]+)"\)', scripts)) <= ids
