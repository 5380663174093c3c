"""Files to tensors, and random weights in their place: what fits, and what is said otherwise."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from voxserve.checkpoints import dummy_weights, load_weights
from voxserve.errors import CheckpointError


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


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"flow\.pt is not there"):
        load(tmp_path / "flow.pt")


@pytest.mark.parametrize("index", ["{}", '{"weight_map": {}}', '{"weight_map": ["a"]}'])
def test_an_index_without_files_is_named(tmp_path: Path, index: str) -> None:
    (single(tmp_path) / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CheckpointError, match=r"index\.json has no weight_map"):
        load(tmp_path)


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
