"""The weights of mini: 8-bit files that fit the modules, and what is said when they do not."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.models.mini_rows import bundled
from voxserve.errors import CheckpointError
from voxserve.models.mini.weights import load, read_bytes
from voxserve.plugin import Checkpoint

LARGEST_SHARD = 16 * 2**20
LARGEST_TOTAL = 25 * 2**20


def test_the_bundled_weights_fill_the_modules() -> None:
    model = load(bundled(), "cpu", "float32")
    assert all(p.dtype == torch.float32 and not p.is_meta for p in model.parameters())
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_the_files_stay_light() -> None:
    folder = bundled().folder
    assert folder is not None
    sizes = [file.stat().st_size for file in folder.iterdir()]
    assert max(sizes) <= LARGEST_SHARD
    assert sum(sizes) <= LARGEST_TOTAL


def test_rows_have_their_own_scale(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    stored = {
        "a.weight": torch.tensor([[127, -64], [1, 0]], dtype=torch.int8),
        "a.weight.scale": torch.tensor([0.5, 2.0], dtype=torch.float16),
        "b.scale": torch.tensor([3.0], dtype=torch.float16),
    }
    save_file(stored, tmp_path / "x.safetensors")
    read = read_bytes(tmp_path / "x.safetensors")
    assert read["a.weight"].tolist() == [[63.5, -32.0], [2.0, 0.0]]
    assert read["b.scale"].tolist() == [3.0]
    assert set(read) == {"a.weight", "b.scale"}


def test_a_damaged_or_absent_file_is_named(tmp_path: Path) -> None:
    folder = bundled().folder
    assert folder is not None
    for name in ("lm.safetensors", "codec.safetensors"):
        shutil.copy(folder / name, tmp_path / name)
    broken = Checkpoint("mini", tmp_path, bundled().config)
    (tmp_path / "codec.safetensors").write_bytes(b"not tensors")
    with pytest.raises(CheckpointError, match=r"codec\.safetensors"):
        load(broken, "cpu", "float32")
    (tmp_path / "codec.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"codec\.safetensors"):
        load(broken, "cpu", "float32")
    shutil.copy(folder / "lm.safetensors", tmp_path / "codec.safetensors")
    with pytest.raises(CheckpointError, match="Missing key"):
        load(broken, "cpu", "float32")
