"""Weights from ONNX files: names by use, and what is wrong with a file said plainly."""

import lzma
from pathlib import Path

import pytest
import torch

from tests.models.cosyvoice3.clip_checkpoint import (
    SMALL_SPEAKER,
    Graph,
    message,
    node,
    speaker_graph,
    value,
    write,
    write_onnx,
)
from voxserve.errors import CheckpointError
from voxserve.models.cosyvoice3.encoder import load_clip_encoder
from voxserve.models.cosyvoice3.onnx_file import read_onnx
from voxserve.models.cosyvoice3.speaker import SpeakerEncoder, SpeakerSizes
from voxserve.models.cosyvoice3.speech_tokenizer import SpeechTokenizer, SpeechTokenizerSizes
from voxserve.plugin import Checkpoint

EXPORTED = Path(__file__).parents[2] / "parity" / "cosyvoice3" / "clip" / "campplus.onnx.xz"


def test_tensors_are_named_by_their_use(tmp_path: Path) -> None:
    write_onnx(tmp_path)
    found = read_onnx(tmp_path / "speech_tokenizer_v3.onnx")
    stored = torch.from_numpy(value("blocks.1.mlp.mlp.2.weight", (512, 128)))
    assert torch.equal(found["blocks.1.mlp.2.weight"].read(), stored.T)
    assert found["quantizer.project_in.weight"].shape == (8, 128)
    assert not [name for name in found if name.startswith("onnx::")]


def test_a_file_of_the_exporter_has_the_names_and_shapes_of_ours(tmp_path: Path) -> None:
    """It also stores equal tensors once, and some as constants between its nodes."""
    file = tmp_path / "campplus.onnx"
    file.write_bytes(lzma.decompress(EXPORTED.read_bytes()))
    exported = {name: tensor.shape for name, tensor in read_onnx(file).items()}
    write(file, speaker_graph(SMALL_SPEAKER), seed=0)
    assert exported == {name: tensor.shape for name, tensor in read_onnx(file).items()}


def test_what_the_exporter_stored_once_has_both_names(tmp_path: Path) -> None:
    file = tmp_path / "campplus.onnx"
    file.write_bytes(lzma.decompress(EXPORTED.read_bytes()))
    found = read_onnx(file)
    first, second = (
        found[f"xvector.block1.tdnnd{layer}.cam_layer.linear2.bias"].read() for layer in (1, 2)
    )
    assert torch.equal(first, second)
    assert first.any()
    ones = found["xvector.dense.nonlinear.batchnorm.weight"].read()
    assert torch.equal(ones, torch.ones(192))


def test_a_name_for_two_tensors_is_left_out(tmp_path: Path) -> None:
    graph = Graph()
    graph.add("/a", "Mul", weight=(3,))
    graph.nodes.append(graph.nodes[0])
    write(tmp_path / "same.onnx", graph, seed=0)
    assert set(read_onnx(tmp_path / "same.onnx")) == {"a.weight"}
    graph.add("/a", "Mul", weight=(2,))
    write(tmp_path / "two.onnx", graph, seed=0)
    assert not read_onnx(tmp_path / "two.onnx")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot mmap an empty file"),
        (b"not an ONNX file", "damaged"),
        (message(7, b""), "no graph"),
        (message(7, message(1, node("/a/Conv", "Conv", ["x"])))[:-3], "ends too early"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.onnx").write_bytes(content)
    with pytest.raises(CheckpointError, match=said):
        read_onnx(tmp_path / "x.onnx")


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    write_onnx(tmp_path)
    file = tmp_path / "campplus.onnx"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"campplus\.onnx is damaged"):
        load_clip_encoder(Checkpoint("x", tmp_path, {}), "cpu")


def test_missing_files_and_tensors_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"speech_tokenizer_v3\.onnx: No such file"):
        load_clip_encoder(Checkpoint("x", tmp_path, {}), "cpu")
    write_onnx(tmp_path)
    graph = speaker_graph(SMALL_SPEAKER)
    graph.nodes = [entry for entry in graph.nodes if "tdnnd2/linear1" not in entry[0]]
    write(tmp_path / "campplus.onnx", graph, seed=0)
    missing = r"xvector\.block1\.tdnnd2\.linear1\.weight is missing for \[8, 10, 1\]"
    with pytest.raises(CheckpointError, match=missing):
        load_clip_encoder(Checkpoint("x", tmp_path, {}), "cpu")


def test_another_network_is_refused(tmp_path: Path) -> None:
    write_onnx(tmp_path)
    write(tmp_path / "speech_tokenizer_v3.onnx", speaker_graph(SMALL_SPEAKER), seed=0)
    with pytest.raises(CheckpointError, match=r"no speech tokenizer: 'conv1\.weight' is missing"):
        load_clip_encoder(Checkpoint("x", tmp_path, {}), "cpu")


def test_the_default_sizes_are_those_of_the_published_files() -> None:
    """Both files are little larger than their weights: 969,451,503 and 28,303,423 bytes."""
    with torch.device("meta"):
        heard, seen = SpeechTokenizer(SpeechTokenizerSizes()), SpeakerEncoder(SpeakerSizes())
    for module, size, graph in ((heard, 969_451_503, 0.002), (seen, 28_303_423, 0.03)):
        held = 4 * sum(tensor.numel() for tensor in module.state_dict().values())
        assert held < size < held * (1 + graph)
