"""Write the checkpoint that the server loads: 8-bit weights, lexicon, reader of unknown words.

Matrices are stored as int8 with one scale a row (`NAME.scale`), all else as float16.
"""

import argparse
import gzip
import json
import lzma
from pathlib import Path

import hibari
import numpy as np
import onnx
import torch
from onnx import numpy_helper
from safetensors.numpy import save_file
from torch import Tensor

ASSETS = Path(hibari.__file__).parent / "assets"


def quantised(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        value = tensor.float()
        if value.dim() < 2:
            out[name] = value.half().numpy()
            continue
        flat = value.flatten(1)
        scale = (flat.abs().amax(1) / 127).clamp(min=1e-8).half().float()
        out[name] = (
            (flat / scale[:, None])
            .round()
            .clamp(-127, 127)
            .to(torch.int8)
            .view(value.shape)
            .numpy()
        )
        out[f"{name}.scale"] = scale.half().numpy()
    return out


def lexicon() -> str:
    """`word<TAB>phonemes`, or `word<TAB>phonemes<TAB>TAG=phonemes ...` where the reading varies."""

    def read(name: str) -> dict:
        with gzip.open(ASSETS / name, "rt", encoding="utf-8") as file:
            return json.load(file)

    words = read("lexicon_us_silver.json.gz") | read("lexicon_us_gold.json.gz")
    lines = []
    for word, value in sorted(words.items()):
        if isinstance(value, dict):
            others = [f"{t}={p}" for t, p in sorted(value.items()) if t != "DEFAULT" and p]
            value = "\t".join([value["DEFAULT"] or "", " ".join(others)])
        if value and "\t" not in word:
            lines.append(f"{word}\t{value}")
    return "\n".join(lines)


def unknown_words() -> dict[str, np.ndarray]:
    """The teacher's reader of unknown words as arrays: a character transformer, CTC output."""
    graph = onnx.load(str(ASSETS / "oov.onnx")).graph
    weights = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    # Matrices of the graph have lost their names; they come in the order of use.
    matrices = [
        weights[n.input[1]] for n in graph.node if n.op_type == "MatMul" and n.input[1] in weights
    ]
    meta = json.loads((ASSETS / "oov.json").read_text("utf-8"))
    out = {"characters": np.array(meta["in"]), "phonemes": np.array(meta["out"])}
    out |= {
        name.removeprefix("m."): value.astype(np.float16)
        for name, value in weights.items()
        if name.startswith("m.")
    }
    for layer in range(4):
        for name, matrix in zip(
            ("qkv", "out", "up", "down"), matrices[4 * layer : 4 * layer + 4], strict=True
        ):
            out[f"layers.{layer}.{name}"] = matrix.astype(np.float16)
    return out | {"head": matrices[16].astype(np.float16)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path, help="folder with lm.pt and decoder.pt")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for source, name in (("lm", "lm"), ("decoder", "codec")):
        tensors = torch.load(args.weights / f"{source}.pt", map_location="cpu")
        tensors.pop("window", None)
        save_file(quantised(tensors), args.out / f"{name}.safetensors")
    with lzma.open(args.out / "lexicon.xz", "wt", encoding="utf-8", preset=9) as file:
        file.write(lexicon())
    np.savez_compressed(args.out / "unknown.npz", **unknown_words())
    for path in sorted(args.out.iterdir()):
        print(f"{path.name} {path.stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
