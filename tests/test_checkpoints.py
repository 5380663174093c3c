"""Names to checkpoints: what is found, and what is said when nothing is."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from voxserve.checkpoints import find
from voxserve.errors import CheckpointError
from voxserve.plugin import Plugin

PLUGINS = """
from voxserve.plugin import Plugin

def unused(*_: object) -> object:
    raise AssertionError("finding a checkpoint runs nothing of it")

acme = Plugin(
    host=unused,
    load=unused,
    recognises=lambda config: config.get("model_type") == "acme",
    published={"acme/loud-1b": {"model_type": "acme", "size": 1}, "acme/loud-7b": {"size": 7}},
    config_names=("acme.json", "config.json"),
)
not_a_plugin = 3
"""
ENTRY_POINTS = """
[voxserve.models]
acme = acme_plugin:acme
gone = acme_plugin_that_is_not_there:plugin
odd = acme_plugin:not_a_plugin
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugin]:
    """Three installed plug-ins, of which two do not load."""
    site = tmp_path / "site"
    metadata = site / "acme-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (site / "acme_plugin.py").write_text(PLUGINS)
    monkeypatch.syspath_prepend(site)
    yield find("acme", dummy=True)[0]
    del sys.modules["acme_plugin"]


def folder_with(path: Path, name: str, content: str) -> Path:
    path.mkdir()
    (path / name).write_text(content)
    return path


def test_the_name_of_a_model_with_files_of_its_own() -> None:
    plugin, checkpoint = find("tiny", dummy=False)
    assert checkpoint.name == "tiny"
    assert checkpoint.folder == plugin.bundled
    assert checkpoint.config["model_type"] == "voxserve_tiny"
    assert checkpoint.dummy


def test_a_folder_is_recognised_by_its_configuration(acme: Plugin, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "mine", "config.json", '{"model_type": "acme", "size": 3}')
    plugin, checkpoint = find(str(folder), dummy=False)
    assert plugin is acme
    assert (checkpoint.folder, checkpoint.config["size"], checkpoint.dummy) == (folder, 3, False)
    assert find(str(folder), dummy=True)[1].dummy


def test_a_plugin_may_name_its_configuration_file(acme: Plugin, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "mine", "acme.json", '{"model_type": "acme"}')
    assert find(str(folder), dummy=False)[0] is acme


def test_published_models_need_no_files_to_be_dummies(acme: Plugin) -> None:
    plugin, checkpoint = find("acme/loud-7b", dummy=True)
    assert plugin is acme
    assert (checkpoint.folder, checkpoint.config, checkpoint.dummy) == (None, {"size": 7}, True)
    assert find("acme", dummy=True)[1].config["size"] == 1


def fails(model: str, *said: str, dummy: bool = False) -> None:
    with pytest.raises(CheckpointError) as caught:
        find(model, dummy=dummy)
    for words in said:
        assert words in caught.value.message


def test_an_unknown_name_is_told_the_known_ones_and_the_nearest(acme: Plugin) -> None:
    fails("tyni", "'tyni'", "known models:", "tiny", "acme/loud-1b", "did you mean tiny?")
    fails("./nowhere", "'./nowhere'", "known models:")


def test_broken_plugins_are_named_and_break_no_other(acme: Plugin) -> None:
    fails("nothing", "plug-in gone", "acme_plugin_that_is_not_there", "plug-in odd", "int")
    fails("gone", "No module named 'acme_plugin_that_is_not_there'")
    fails("odd", "is a int, not a Plugin")


def test_a_model_without_weights_of_its_own_says_what_to_name(acme: Plugin) -> None:
    fails("acme", "name a folder or hub id", "acme/loud-1b, acme/loud-7b")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", '{"model_type": "other"}', "of no known kind"),
        ("readme.txt", "", "has no acme.json or config.json"),
        ("config.json", "{", "is not JSON"),
        ("config.json", "[1]", "holds a list"),
    ],
)
def test_a_folder_that_is_no_checkpoint(
    acme: Plugin, name: str, content: str, said: str, tmp_path: Path
) -> None:
    fails(str(folder_with(tmp_path / "mine", name, content)), said)


FIND = """
import sys
from voxserve.checkpoints import find
from voxserve.errors import CheckpointError
try:
    print(find(sys.argv[1], dummy=sys.argv[2:] == ["dummy"])[1].folder)
except CheckpointError as error:
    print(error.message)
assert "torch" not in sys.modules
"""


def find_elsewhere(home: Path, *arguments: str, **environment: str) -> str:
    """What `find` says in a process of its own, for the hub's client reads its settings once."""
    ran = subprocess.run(
        [sys.executable, "-c", FIND, *arguments],
        env={**os.environ, "HF_HOME": str(home), **environment},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def cached(home: Path) -> Path:
    """The hub's cache with one model in it. Returns the model's folder."""
    model = home / "hub" / "models--acme--noise"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0123")
    snapshot = model / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"model_type": "voxserve_tiny"}')
    return snapshot


@pytest.mark.parametrize(
    "network", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}]
)
def test_a_hub_id_without_a_network(network: dict[str, str], tmp_path: Path) -> None:
    folder = cached(tmp_path)
    assert find_elsewhere(tmp_path, "acme/noise", **network) == str(folder)
    assert find_elsewhere(tmp_path, "acme/noise", "dummy", **network) == str(folder)
    said = find_elsewhere(tmp_path, "acme/none", **network)
    assert said.startswith("no folder and no hub id acme/none: ")


class Hub(BaseHTTPRequestHandler):
    """A hub that has one model with two files, in the form that its client of any age asks for."""

    COMMIT = "0123456789012345678901234567890123456789"
    CONFIG = b'{"model_type": "voxserve_tiny"}'
    NAMES = ("config.json", "weights.bin")

    def do_GET(self) -> None:
        model = "/api/models/acme/noise"
        siblings = [{"rfilename": name} for name in self.NAMES]
        files = [{"type": "file", "path": name, "size": 31, "oid": "89"} for name in self.NAMES]
        about = {"id": "acme/noise", "sha": self.COMMIT, "siblings": siblings}
        answers = {
            f"{model}/revision/main": json.dumps(about).encode(),
            f"{model}/tree/{self.COMMIT}": json.dumps(files).encode(),
            f"/acme/noise/resolve/{self.COMMIT}/config.json": self.CONFIG,
        }
        body = answers.get(self.path.split("?")[0])
        self.send_response(200 if body is not None else 404)
        if body is None:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", str(len(body or b"")))
        self.send_header("ETag", '"89"')
        self.send_header("X-Repo-Commit", self.COMMIT)
        self.end_headers()
        if self.command == "GET" and body is not None:
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_hub_id_over_the_network(hub: str, tmp_path: Path) -> None:
    folder = Path(find_elsewhere(tmp_path, "acme/noise", HF_ENDPOINT=hub))
    assert folder.name == Hub.COMMIT
    assert json.loads((folder / "config.json").read_text())["model_type"] == "voxserve_tiny"
    assert not (folder / "weights.bin").exists()
    said = find_elsewhere(tmp_path, "acme/tiny", HF_ENDPOINT=hub)
    assert said.startswith("no folder and no hub id acme/tiny: ")
    assert "did you mean" in said
