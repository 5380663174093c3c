"""Names to checkpoints, and files to tensors: what is found, and what is said when it is not."""

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from voxserve.checkpoints import dummy_weights, find, load_weights
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


class Net(nn.Module):
    """Two tensors that a checkpoint holds, and one buffer that none does."""

    offset: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.register_buffer("offset", torch.ones(2, device="cpu"), persistent=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


def net() -> Net:
    with torch.device("meta"):
        return Net()


WEIGHTS = {
    "inner.weight": torch.arange(6.0).view(2, 3),
    "inner.bias": torch.tensor([0.5, 1.5]),
    "count": torch.tensor(7),
}


def load(path: Path, dtype: torch.dtype = torch.float32, **options: object) -> Net:
    module = net()
    load_weights(module, path, device="cpu", dtype=dtype, **options)  # type: ignore[arg-type]
    return module


def single(folder: Path) -> Path:
    save_file(WEIGHTS, folder / "model.safetensors")
    return folder


def shards(folder: Path) -> Path:
    names = list(WEIGHTS)
    parts = {"a.safetensors": names[:1], "b.safetensors": names[1:]}
    for file, held in parts.items():
        save_file({name: WEIGHTS[name] for name in held}, folder / file)
    index = {"weight_map": {name: file for file, held in parts.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def odd_name(folder: Path) -> Path:
    save_file(WEIGHTS, folder / "weights.safetensors")
    return folder


def one_file(folder: Path) -> Path:
    save_file(WEIGHTS, folder / "flow.safetensors")
    return folder / "flow.safetensors"


def pickled(folder: Path) -> Path:
    torch.save(WEIGHTS, folder / "flow.pt")
    return folder / "flow.pt"


LAYOUTS = [single, shards, odd_name, one_file, pickled]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_layout_loads(
    layout: Callable[[Path], Path], dtype: torch.dtype, tmp_path: Path
) -> None:
    module = load(layout(tmp_path), dtype)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, WEIGHTS[name].to(tensor.dtype))
        assert tensor.dtype == (torch.int64 if name == "count" else dtype)
    assert module.offset.tolist() == [1, 1]
    assert not module.training
    assert not module.inner.weight.requires_grad


def test_tensors_may_be_renamed_or_knowingly_left_out(tmp_path: Path) -> None:
    published = {f"decoder.{name}": tensor for name, tensor in WEIGHTS.items()}
    save_file({**published, "encoder.big": torch.zeros(4)}, tmp_path / "model.safetensors")

    def rename(name: str) -> str | None:
        return name.removeprefix("decoder.") if name.startswith("decoder.") else None

    assert torch.equal(load(tmp_path, rename=rename).inner.bias, WEIGHTS["inner.bias"])


def test_two_names_for_one_tensor_are_refused(tmp_path: Path) -> None:
    save_file({**WEIGHTS, "old.bias": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="twice"):
        load(tmp_path, rename=lambda name: name.replace("old", "inner"))


def test_many_wrong_tensors_are_counted_and_a_few_named(tmp_path: Path) -> None:
    wrong = {f"extra.{n}": torch.zeros(1) for n in range(9)}
    save_file({**wrong, "inner.bias": torch.zeros(5)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError) as caught:
        load(tmp_path)
    message = caught.value.message
    assert "2 missing: count, inner.weight" in message
    assert "9 unexpected: extra.0, extra.1, extra.2, extra.3 and 5 more" in message
    assert "1 of another shape: inner.bias [5] for [2]" in message


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    (shards(tmp_path) / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lacks 1 shards: b\.safetensors"):
        load(tmp_path)


def test_no_file_and_too_many_files(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no \.safetensors file"):
        load(tmp_path)
    odd_name(tmp_path)
    one_file(tmp_path)
    with pytest.raises(CheckpointError, match=r"more than one \.safetensors file"):
        load(tmp_path)


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    file = one_file(tmp_path)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="damaged"):
        load(file)


class Bomb:
    """Unpickling it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("save", [torch.save, lambda obj, f: f.write_bytes(pickle.dumps(obj))])
def test_a_file_that_runs_code_runs_none(save: Callable[..., None], tmp_path: Path) -> None:
    save({"inner.bias": Bomb(tmp_path / "boom")}, tmp_path / "flow.pt")
    with pytest.raises(CheckpointError, match="not a plain file of tensors"):
        load(tmp_path / "flow.pt")
    assert not (tmp_path / "boom").exists()


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(400, 300)
        self.two = nn.Linear(400, 300)
        self.norm = nn.LayerNorm(400)


def dummy(seed: int, dtype: torch.dtype = torch.float32) -> Wide:
    with torch.device("meta"):
        module = Wide()
    dummy_weights(module, device="cpu", dtype=dtype, seed=seed)
    return module


def test_dummy_weights_depend_on_seed_and_name_alone() -> None:
    one = dummy(1)
    assert torch.equal(one.one.weight, dummy(1).one.weight)
    assert torch.equal(one.one.weight.bfloat16(), dummy(1, torch.bfloat16).one.weight)
    assert not torch.equal(one.one.weight, one.two.weight)
    assert not torch.equal(one.one.weight, dummy(2).one.weight)
    with torch.device("meta"):
        alone = nn.ModuleDict({"two": nn.Linear(400, 300)})
    dummy_weights(alone, device="cpu", dtype=torch.float32, seed=1)
    assert torch.equal(alone.get_parameter("two.weight"), one.two.weight)


def test_dummy_weights_keep_the_size_of_what_passes_through() -> None:
    module = dummy(1)
    assert module.one.weight.std().item() == pytest.approx(400**-0.5, rel=0.02)
    assert module.norm.weight.tolist() == [1.0] * 400
    assert not module.norm.bias.any() and not module.one.bias.any()


def test_a_model_may_choose_its_dummy_weights() -> None:
    module = net()

    def moments(name: str, shape: tuple[int, ...]) -> tuple[float, float] | None:
        return (3.0, 0.0) if name == "inner.bias" and shape == (2,) else None

    dummy_weights(module, device="cpu", dtype=torch.float32, moments=moments)
    assert module.inner.bias.tolist() == [3, 3]
    assert module.inner.weight.std() > 0.1
