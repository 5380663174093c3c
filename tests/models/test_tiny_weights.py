"""The weights of tiny: random ones that are always the same, or those of a checkpoint's folder."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.models.tiny_rows import Rows, model, prompt
from voxserve.checkpoints import find
from voxserve.errors import CheckpointError
from voxserve.models.tiny.config import TinyConfig
from voxserve.models.tiny.stages import TinyModel
from voxserve.models.tiny.weights import load
from voxserve.plugin import Checkpoint


def raw_config() -> dict[str, Any]:
    return json.loads(json.dumps(dict(find("tiny", dummy=False)[1].config)))  # type: ignore[no-any-return]


def checkpoint_in(folder: Path, tensors: dict[str, torch.Tensor]) -> Checkpoint:
    (folder / "config.json").write_text(json.dumps(raw_config()))
    save_file(tensors, folder / "model.safetensors")
    plugin, checkpoint = find(str(folder), dummy=False)
    assert plugin is find("tiny", dummy=False)[0]
    assert not checkpoint.dummy
    return checkpoint


def test_random_weights_are_the_same_every_time_and_in_every_dtype() -> None:
    one, two, wide = model("float32"), model("float32"), model("float64")
    assert one.state_dict().keys() == wide.state_dict().keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name])
        assert torch.equal(tensor.double(), wide.state_dict()[name])
        assert tensor.isfinite().all()


def test_another_seed_gives_other_weights() -> None:
    checkpoint = find("tiny", dummy=False)[1]
    other = load(replace(checkpoint, config={**raw_config(), "seed": 2}), "cpu", "float32")
    assert not torch.equal(other.lm.output.weight, model("float32").lm.output.weight)


def test_a_saved_checkpoint_speaks_like_what_was_saved(tmp_path: Path) -> None:
    saved = model("float32")
    checkpoint = checkpoint_in(tmp_path, saved.state_dict())
    loaded = load(checkpoint, "cpu", "float32")
    ours, theirs = Rows(loaded, "float32"), Rows(saved, "float32")
    one = prompt(seed=3)
    codes = ours.speak({1: one}, 10)[0]
    assert torch.equal(codes, theirs.speak({1: one}, 10)[0])
    assert torch.equal(ours.stream(codes, 0, [10]), theirs.stream(codes, 0, [10]))


def lose(weights: dict[str, torch.Tensor]) -> None:
    del weights["lm.norm.weight"]


def add(weights: dict[str, torch.Tensor]) -> None:
    weights["lm.layers.9.mlp.up_proj.weight"] = torch.zeros(2)


def reshape(weights: dict[str, torch.Tensor]) -> None:
    weights["codec_net.books"] = torch.zeros(4, 64, 8)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lose, r"1 missing: lm\.norm\.weight"),
        (add, r"1 unexpected: lm\.layers\.9\.mlp\.up_proj\.weight"),
        (reshape, r"1 of another shape: codec_net\.books \[4, 64, 8\] for \[4, 64, 16\]"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    change: Callable[[dict[str, torch.Tensor]], None], said: str, tmp_path: Path
) -> None:
    weights = dict(model("float32").state_dict())
    change(weights)
    with pytest.raises(CheckpointError, match=said):
        load(checkpoint_in(tmp_path, weights), "cpu", "float32")


@pytest.mark.parametrize("lost", ["lm", "codes", "languages", "codec"])
def test_a_configuration_without_a_field_is_refused(lost: str) -> None:
    config = raw_config()
    del config[lost]
    with pytest.raises(CheckpointError, match=f"configuration of tiny: .*{lost}"):
        TinyConfig.read(config)


def test_a_configuration_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(CheckpointError, match="mystery"):
        TinyConfig.read({**raw_config(), "mystery": 1})


def test_modules_are_ready_to_serve() -> None:
    tiny: TinyModel = model("float32")
    assert not tiny.training
    assert not any(parameter.requires_grad for parameter in tiny.parameters())
    assert {tensor.device.type for tensor in [*tiny.parameters(), *tiny.buffers()]} == {"cpu"}
