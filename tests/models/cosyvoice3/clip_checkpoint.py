"""Write random campplus.onnx and speech_tokenizer_v3.onnx as they are published, of any size.

A file holds the operations that carry weights, named as torch's exporter names them, with its
anonymous names for what it folds and transposes; it is no graph that could be run. Names and shapes
are written out here, independent of the reader under test: make_goldens.py loads the tokenizer's
file with the public loader, and compares the speaker encoder's names with a real export. Values
are those of a stream that never changes, so files need not be stored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.parity.qwen3_tts.checkpoint import uniform

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TokenizerShape:
    """The defaults are the published sizes."""

    mels: int = 128
    width: int = 1280
    layers: int = 12


@dataclass(frozen=True)
class SpeakerShape:
    """The defaults are the published sizes."""

    mels: int = 80
    planes: int = 32
    stem: int = 128
    growth: int = 32
    bottleneck: int = 128
    layers: tuple[int, int, int] = (12, 24, 16)
    size: int = 192


SMALL_TOKENIZER = TokenizerShape(width=128, layers=3)
SMALL_SPEAKER = SpeakerShape(planes=4, stem=8, growth=2, bottleneck=8)


@dataclass
class Graph:
    """Nodes and tensors in the order of use."""

    nodes: list[tuple[str, str, list[str]]] = field(default_factory=list)
    tensors: dict[str, tuple[str, Shape]] = field(default_factory=dict)
    """Name in the file -> (what its values depend on, shape)."""

    def add(self, path: str, operation: str, **shapes: Shape) -> None:
        """One node in the module that `path` names, with a parameter of each of these shapes."""
        module = path.strip("/").replace("/", ".")
        names = ["input"]
        for role, shape in shapes.items():
            name = f"{module}.{role}"
            folded = operation == "Conv" and "bias" in shapes and "cam_layer" not in path
            if folded or operation in ("MatMul", "Mul", "Add"):
                name = f"onnx::{operation}_{1000 + len(self.tensors)}"
            names.append(name)
            self.tensors[name] = (f"{module}.{role}", shape)
        self.nodes.append((f"{path}/{operation}", operation, names))

    def linear(self, path: str, inputs: int, outputs: int, *, bias: bool = True) -> None:
        self.add(path, "MatMul", weight=(inputs, outputs))
        if bias:
            self.add(path, "Add", bias=(outputs,))

    def norm(self, path: str, width: int) -> None:
        """Layer norm, taken apart."""
        self.add(path, "Mul", weight=(width,))
        self.add(path, "Add", bias=(width,))

    def batch_norm(self, path: str, width: int) -> None:
        size = (width,)
        self.add(
            f"{path}/batchnorm",
            "BatchNormalization",
            weight=size,
            bias=size,
            running_mean=size,
            running_var=size,
        )


def tokenizer_graph(shape: TokenizerShape) -> Graph:
    graph, width = Graph(), shape.width
    graph.add("/conv1", "Conv", weight=(width, shape.mels, 3), bias=(width,))
    graph.add("/conv2", "Conv", weight=(width, width, 3), bias=(width,))
    for layer in range(shape.layers):
        block = f"/blocks.{layer}"
        graph.norm(f"{block}/attn_ln", width)
        graph.linear(f"{block}/attn/query", width, width)
        graph.linear(f"{block}/attn/key", width, width, bias=False)
        graph.linear(f"{block}/attn/value", width, width)
        graph.add(f"{block}/attn/fsmn_block", "Conv", weight=(width, 1, 31))
        graph.linear(f"{block}/attn/out", width, width)
        graph.norm(f"{block}/mlp_ln", width)
        graph.linear(f"{block}/mlp/mlp.0", width, 4 * width)
        graph.linear(f"{block}/mlp/mlp.2", 4 * width, width)
    graph.add("/quantizer/project_in", "MatMul", weight=(width, 8))
    graph.add("/quantizer/project_in", "Add", bias=(8,))
    bias = graph.nodes[-1][2]
    graph.tensors["quantizer.project_in.bias"] = graph.tensors.pop(bias[1])
    bias[1] = "quantizer.project_in.bias"
    return graph


def speaker_graph(shape: SpeakerShape) -> Graph:
    graph, planes = Graph(), shape.planes
    square = (planes, planes, 3, 3)
    graph.add("/head/conv1", "Conv", weight=(planes, 1, 3, 3), bias=(planes,))
    for layer in ("layer1/layer1", "layer2/layer2"):
        for number in (0, 1):
            path = f"/head/{layer}.{number}"
            graph.add(f"{path}/conv1", "Conv", weight=square, bias=(planes,))
            graph.add(f"{path}/conv2", "Conv", weight=square, bias=(planes,))
            if number == 0:
                graph.add(
                    f"{path}/shortcut/shortcut.0",
                    "Conv",
                    weight=(planes, planes, 1, 1),
                    bias=(planes,),
                )
    graph.add("/head/conv2", "Conv", weight=square, bias=(planes,))
    width, inner, growth = shape.stem, shape.bottleneck, shape.growth
    seen = planes * (shape.mels // 8)
    graph.add("/xvector/tdnn/linear", "Conv", weight=(width, seen, 5), bias=(width,))
    for block, layers in enumerate(shape.layers, 1):
        for step in range(1, layers + 1):
            path = f"/xvector/block{block}/tdnnd{step}"
            graph.batch_norm(f"{path}/nonlinear1", width)
            graph.add(f"{path}/linear1", "Conv", weight=(inner, width, 1), bias=(inner,))
            gate = f"{path}/cam_layer"
            half = inner // 2
            graph.add(f"{gate}/linear_local", "Conv", weight=(growth, inner, 3))
            graph.add(f"{gate}/linear1", "Conv", weight=(half, inner, 1), bias=(half,))
            graph.add(f"{gate}/linear2", "Conv", weight=(growth, half, 1), bias=(growth,))
            width += growth
        graph.batch_norm(f"/xvector/transit{block}/nonlinear", width)
        bias = {"bias": (width // 2,)} if block == 3 else {}
        graph.add(f"/xvector/transit{block}/linear", "Conv", weight=(width // 2, width, 1), **bias)
        width //= 2
    graph.add("/xvector/dense/linear", "Conv", weight=(shape.size, 2 * width, 1))
    graph.batch_norm("/xvector/dense/nonlinear", shape.size)
    return graph


def value(name: str, shape: Shape, seed: int = 0) -> NDArray[np.float32]:
    """The value of one parameter, sized so that codes are varied and places matter."""
    noise: NDArray[np.float32] = uniform(f"{name} {seed}", shape)
    last = name.rsplit(".", 1)[-1]
    if last in ("bias", "running_mean"):
        return np.float32(0.25) * noise
    if len(shape) == 1:
        return np.float32(1) + np.float32(0.5) * noise
    linear = len(shape) == 2
    inputs = shape[0] if linear else int(np.prod(shape[1:]))
    gain = 1.0
    if name.endswith(("query.weight", "key.weight")):
        gain = 2.0
    elif name.startswith("quantizer"):
        gain = 0.4
    return np.float32(gain * (3 / inputs) ** 0.5) * noise


def write_onnx(
    folder: Path,
    tokenizer: TokenizerShape = SMALL_TOKENIZER,
    speaker: SpeakerShape = SMALL_SPEAKER,
    seed: int = 0,
) -> None:
    """Both files, in the folder."""
    write(folder / "speech_tokenizer_v3.onnx", tokenizer_graph(tokenizer), seed)
    write(folder / "campplus.onnx", speaker_graph(speaker), seed)


def write(path: Path, graph: Graph, seed: int) -> None:
    """One file; values are made as they are written, since the largest file has a gigabyte."""
    parts = [message(1, node(*entry)) for entry in graph.nodes]
    heads = {name: tensor(name, shape) for name, (_, shape) in graph.tensors.items()}
    sizes = {name: 4 * int(np.prod(shape)) for name, (_, shape) in graph.tensors.items()}
    opened = {
        name: number(5, 2) + varint(len(head) + sizes[name]) + head for name, head in heads.items()
    }
    total = sum(map(len, parts)) + sum(map(len, opened.values())) + sum(sizes.values())
    with path.open("wb") as file:
        file.write(number(1, 0) + varint(8) + number(7, 2) + varint(total))
        file.writelines(parts)
        for name, (source, shape) in graph.tensors.items():
            file.write(opened[name])
            file.write(value(source, shape, seed).astype("<f4").tobytes())


def node(name: str, operation: str, inputs: Sequence[str]) -> bytes:
    fields = [message(1, text.encode()) for text in inputs]
    fields += [message(2, f"{name}_output_0".encode()), message(3, name.encode())]
    return b"".join([*fields, message(4, operation.encode())])


def tensor(name: str, shape: Shape) -> bytes:
    """All of a float32 tensor but its bytes, which must follow."""
    dims = b"".join(number(1, 0) + varint(size) for size in shape)
    kind = number(2, 0) + varint(1)
    size = 4 * int(np.prod(shape))
    return dims + kind + message(8, name.encode()) + number(9, 2) + varint(size)


def message(field_number: int, content: bytes) -> bytes:
    return number(field_number, 2) + varint(len(content)) + content


def number(field_number: int, kind: int) -> bytes:
    return varint(field_number << 3 | kind)


def varint(rest: int) -> bytes:
    return bytes(_sevens(rest))


def _sevens(rest: int) -> Iterator[int]:
    while rest > 0x7F:
        yield rest & 0x7F | 0x80
        rest >>= 7
    yield rest
