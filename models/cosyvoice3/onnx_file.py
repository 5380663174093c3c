"""The weights in an ONNX file, named as the modules that the file was exported from.

Two of the published files are ONNX graphs, of which only the weights are needed. The few fields of
the format that hold them are read here, from a memory map: the `onnx` package would be 36 MB to
install and would hold the larger file (1 GB) in memory twice.

The exporter folds weights into each other (batch norm into the convolution before it, a transposed
matrix) and then calls them `onnx::MatMul_2536` or the like. Their real names follow from where they
are used: a node is called by the modules around it, `/blocks.0/mlp/mlp.2/MatMul`, and its operation
tells which parameter each input is.
"""

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from voxserve.errors import CheckpointError

FLOAT = 1
"""The number of float32 among the format's types; what has another type is no weight."""

ROLES: Mapping[str, tuple[str | None, ...]] = {
    "Conv": (None, "weight", "bias"),
    "MatMul": ("weight", "weight"),
    "Mul": ("weight", "weight"),
    "Add": ("bias", "bias"),
    "LayerNormalization": (None, "weight", "bias"),
    "BatchNormalization": (None, "weight", "bias", "running_mean", "running_var"),
}
"""What the inputs of an operation are, by their place, where they are constants."""

Value = int | memoryview


@dataclass(frozen=True, slots=True)
class Constant:
    """One tensor of the file. transposed: it is stored as [inputs, outputs] of a linear layer."""

    dims: tuple[int, ...]
    data: memoryview
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """As `read` gives it."""
        return self.dims[::-1] if self.transposed else self.dims

    def read(self) -> Tensor:
        """A copy, float32; of a transposed one the view, since its multiplications are as fast."""
        array: NDArray[np.float32] = np.frombuffer(self.data, "<f4").reshape(self.dims)
        tensor = torch.from_numpy(array.copy())
        return tensor.T if self.transposed else tensor


@dataclass(slots=True)
class _Node:
    operation: str = ""
    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    constant: Constant | None = None


def read_onnx(path: Path) -> dict[str, Constant]:
    """Parameter name -> tensor, float32 ones alone; other constants of the graph are among them.

    A name that stands for two different tensors is left out. Raises CheckpointError when the file
    is missing or damaged.
    """
    try:
        with path.open("rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        nodes, constants = _graph(content)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, IndexError) as error:
        raise CheckpointError(f"{path} is damaged or no ONNX file: {error}") from error
    same = {node.outputs[0]: node.inputs[0] for node in nodes if node.operation == "Identity"}
    found: dict[str, dict[str, Constant]] = {}
    for node in nodes:
        for role, name in zip(ROLES.get(node.operation, ()), node.inputs, strict=False):
            source = same.get(name, name)
            constant = constants.get(source)
            if role is None or constant is None or prod(constant.dims) == 1:
                continue
            if node.operation == "MatMul":
                constant = Constant(constant.dims, constant.data, transposed=True)
            known = f"{_module(node.name)}.{role}"
            found.setdefault(known, {})[source] = constant
    return {
        name: next(iter(tensors.values())) for name, tensors in found.items() if len(tensors) == 1
    }


def _module(name: str) -> str:
    """The module that a node belongs to: `/blocks.0/mlp/mlp.2/MatMul` -> `blocks.0.mlp.2`.

    A part of a sequence is written behind the sequence and named with it.
    """
    parts: list[str] = []
    for part in name.strip("/").split("/")[:-1]:
        if parts and part.startswith(parts[-1] + "."):
            parts.pop()
        parts.append(part)
    return ".".join(parts)


def _graph(model: memoryview) -> tuple[list[_Node], dict[str, Constant]]:
    nodes: list[_Node] = []
    constants: dict[str, Constant] = {}
    for number, graph in _fields(model):
        if number != 7:
            continue
        for part, value in _fields(_bytes(graph)):
            if part == 1:
                node = _node(_bytes(value))
                nodes.append(node)
                if node.operation == "Constant" and node.constant is not None:
                    constants[node.outputs[0]] = node.constant
            elif part == 5:
                name, constant = _tensor(_bytes(value))
                if constant is not None:
                    constants[name] = constant
    if not nodes:
        raise ValueError("it holds no graph")
    return nodes, constants


def _node(content: memoryview) -> _Node:
    node = _Node()
    for number, value in _fields(content):
        if number == 1:
            node.inputs.append(_text(value))
        elif number == 2:
            node.outputs.append(_text(value))
        elif number == 3:
            node.name = _text(value)
        elif number == 4:
            node.operation = _text(value)
        elif number == 5:
            for part, inner in _fields(_bytes(value)):
                if part == 5:
                    node.constant = _tensor(_bytes(inner))[1]
    return node


def _tensor(content: memoryview) -> tuple[str, Constant | None]:
    """(name, the tensor, or None where it is not of float32)."""
    name, kind, dims, data = "", 0, list[int](), memoryview(b"")
    for number, value in _fields(content):
        if number == 1:
            dims += [value] if isinstance(value, int) else _varints(value)
        elif number == 2 and isinstance(value, int):
            kind = value
        elif number == 8:
            name = _text(value)
        elif number in (4, 9):  # packed floats, raw bytes: the same bytes
            data = _bytes(value)
        elif number == 13:
            raise ValueError(f"the values of {name} are in another file")
    if kind != FLOAT:
        return name, None
    if len(data) != 4 * prod(dims):
        raise ValueError(f"{name or 'a constant'} has {len(data)} bytes for the shape {dims}")
    return name, Constant(tuple(dims), data)


def _fields(content: memoryview) -> Iterator[tuple[int, Value]]:
    """(number, value) of the fields of one message in the wire format of protocol buffers."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _varint(content, place)
            yield number, value
            continue
        if kind == 2:
            size, place = _varint(content, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if place + size > len(content):
            raise ValueError("it ends too early")
        yield number, content[place : place + size]
        place += size


def _varint(content: memoryview, place: int) -> tuple[int, int]:
    """(the number at `place`, seven bits a byte, the place behind it)."""
    value = shift = 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def _varints(content: memoryview) -> list[int]:
    values, place = [], 0
    while place < len(content):
        value, place = _varint(content, place)
        values.append(value)
    return values


def _bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value


def _text(value: Value) -> str:
    return bytes(_bytes(value)).decode()
