"""A Higgs Audio v3 folder of real size with random bf16 weights: load it on a CPU, speak 8 frames.

    python benchmarks/higgs_audio_v3_full_size.py [--folder FOLDER] [--layers 36]

Writes the folder first (9.3 GB in shards, deleted again unless named), then loads it in a process
of its own, encodes a reference clip, speaks in its voice and without one, and prints one JSON line:
bytes of weights, peak memory above them, seconds, and the first codes. Fails when the peak is more
than 2.5 GB above the weights; the codec, stored in bfloat16, becomes 0.4 GB larger as float32.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel

from voxserve.config import EngineConfig
from voxserve.engine.memory import allocate, sizes_for
from voxserve.models.higgs_audio_v3 import plugin
from voxserve.models.higgs_audio_v3.codec import HiggsCodec
from voxserve.models.higgs_audio_v3.config import HiggsConfig
from voxserve.models.higgs_audio_v3.lm import HiggsLm
from voxserve.models.higgs_audio_v3.weights import CODES, SOUND
from voxserve.plugin import Checkpoint, Target
from voxserve.requests import Prompt, ReferenceClip, SpeechRequest

HUB_ID = "bosonai/higgs-tts-3-4b"
LIMIT_BYTES = 2_500_000_000
SHARD_BYTES = 1_000_000_000
FRAMES = 8
MARKS = ("<|tts|>", "<|text|>", "<|audio|>", "<|ref_audio|>", "<|ref_text|>")


def shapes(config: HiggsConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Published names, the copies of the tied tables included."""
    with torch.device("meta"):
        lm, sound = HiggsLm(config.body), HiggsCodec(config.codec, config.body.codebooks)
    text, codes = tuple(lm.text.weight.shape), tuple(lm.codes.weight.shape)
    yield "tied.head.text_head.weight", text
    yield "tied.head.modality_heads.0.weight", codes
    for name, tensor in lm.state_dict().items():
        name = name.replace("codes.", f"{CODES}embedding.", 1) if name == "codes.weight" else name
        name = "tied.embedding.text_embedding.weight" if name == "text.weight" else name
        yield name, tuple(tensor.shape)
    for name, tensor in sound.state_dict().items():
        yield f"{SOUND}{name}", tuple(tensor.shape)


def write(folder: Path, layers: int) -> None:
    """The published layout with random weights; the vocabulary is bare bytes."""
    published: dict[str, Any] = dict(plugin.published[HUB_ID])
    published["text_config"] = {**published["text_config"], "num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(published))
    letters = {letter: i for i, letter in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": 151_700 + i, "content": mark} for i, mark in enumerate(MARKS)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False},
        "model": {"type": "BPE", "vocab": letters, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    held: dict[str, torch.Tensor] = {}
    places: dict[str, str] = {}
    config = HiggsConfig.read(Checkpoint(HUB_ID, None, published, dummy=True))
    torch.manual_seed(0)
    last = None
    for last in [*shapes(config), None]:
        if last is None or sum(t.numel() * 2 for t in held.values()) > SHARD_BYTES:
            file = f"model-{len(set(places.values())):05d}.safetensors"
            save_file(held, folder / file)
            places |= dict.fromkeys(held, file)
            held = {}
        if last is not None:
            name, shape = last
            vector = len(shape) == 1 or name.endswith(("alpha", "original0"))
            deviation = 0.0 if vector else float(np.prod(shape[1:])) ** -0.5
            mean = float(vector and not name.endswith("bias"))
            held[name] = torch.empty(shape, dtype=torch.bfloat16).normal_(mean, deviation)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def speak(folder: Path) -> dict[str, Any]:
    """Load, encode, prefill, decode and turn into sound; what it cost."""
    torch.set_num_threads(2)
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    checkpoint = Checkpoint("full", folder, json.loads((folder / "config.json").read_text()))
    host = plugin.host(checkpoint)
    start = time.monotonic()
    model = plugin.load(checkpoint, Target("cpu", "bfloat16"))
    loaded = time.monotonic()
    sizes = sizes_for(host.spec, EngineConfig(slots=1, clips=1), "bfloat16")
    state = allocate(host.spec, sizes, "cpu")
    wave = np.random.default_rng(0).uniform(-0.1, 0.1, 24_000).astype(np.float32)
    clip = ReferenceClip("noise", wave, "Some noise.")
    one = torch.zeros(1, dtype=torch.int64)
    padded = torch.zeros(1, 5 * 24_000)
    padded[0, : len(wave)] = torch.from_numpy(wave)
    model.encode({"clips": one, "audio": padded, "lengths": one + len(wave)}, state)
    encoded = time.monotonic()
    request = SpeechRequest(text="Hello.", max_frames=FRAMES)
    first = {}
    for name, prompt in (
        ("zero_shot", host.prompt(request)),
        ("clone", host.prompt(SpeechRequest(text="Hello.", max_frames=FRAMES, clip=clip))),
    ):
        rows = say(model, host.spec.pad_row, prompt, state, sizes.table_pages["kv"])
        assert rows.shape == (FRAMES + 7, 8) and len(rows[:, 0].unique()) > 2
        codes = torch.stack([rows[book : book + FRAMES, book] for book in range(8)], dim=1)
        window = torch.zeros(1, 10 + 10 + 10, 8, dtype=torch.int64)
        window[0, 10 : 10 + FRAMES] = codes
        real = torch.zeros(1, 30, dtype=torch.bool)
        real[0, 10 : 10 + FRAMES] = True
        audio = model.codec({"codes": window, "valid": real}, state)["audio"]
        assert audio.shape == (1, 10 * 960) and audio.isfinite().all()
        first[name] = rows[7].tolist()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "model": HUB_ID,
        "weights_bytes": weights,
        "peak_bytes": peak,
        "above_weights_bytes": peak - weights,
        "load_s": round(loaded - start, 1),
        "encode_s": round(encoded - loaded, 1),
        "speak_s": round(time.monotonic() - encoded, 1),
        "row_7": first,
    }


def say(
    model: Any, pad: tuple[int, ...], prompt: Prompt, state: dict[str, torch.Tensor], pages: int
) -> torch.Tensor:
    """Rows of codes [FRAMES + 7, 8] of one request."""
    rows = np.zeros((1, 128, prompt.rows.shape[1]), np.int64)
    rows[0, : len(prompt.rows)] = prompt.rows
    one = torch.zeros(1, dtype=torch.int64)
    io = {
        "slots": one,
        "lengths": one + len(prompt.rows),
        "rows": torch.from_numpy(rows),
        "sampling": torch.from_numpy(prompt.sampling)[None],
        "seeds": one,
        "ignore_eos": one > 0,
        "clips": one,
        "pages_kv": torch.arange(pages)[None],
    }
    said = [model.prefill(io, state)["codes"]]
    for step in range(1, FRAMES + 7):
        inputs = {"slots": one, "steps": one + step, "inject": torch.tensor([pad])}
        said.append(model.decode(inputs, state)["codes"])
    return torch.cat(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--layers", type=int, default=36, help="fewer, where memory is short")
    parser.add_argument("--step", choices=("write", "speak"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step == "write":
        arguments.folder.mkdir(parents=True, exist_ok=True)
        write(arguments.folder, arguments.layers)
        return
    if arguments.step == "speak":
        result = speak(arguments.folder)
        print(json.dumps(result))
        sys.exit(int(result["above_weights_bytes"] > LIMIT_BYTES))
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        for step in ("write", "speak"):
            again = [sys.executable, __file__, "--layers", str(arguments.layers)]
            subprocess.run([*again, "--folder", str(folder), "--step", step], check=True)


if __name__ == "__main__":
    main()
