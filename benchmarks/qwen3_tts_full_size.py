"""A Qwen3-TTS folder of real size with random bf16 weights: load it on a CPU, speak three frames.

    python benchmarks/qwen3_tts_full_size.py [--size 0.6B | 1.7B] [--folder FOLDER]

Writes the folder first (2 to 5 GB, deleted again unless named), then loads it in a process of its
own, and prints one JSON line: bytes of weights, peak memory of that process above them, seconds,
and the codes of the first frame. Fails when the peak is more than 1.5 GB above the weights.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel

from voxserve.config import EngineConfig
from voxserve.engine.memory import allocate, sizes_for
from voxserve.models.qwen3_tts import plugin
from voxserve.models.qwen3_tts.config import Qwen3Config
from voxserve.models.qwen3_tts.published import CODEC
from voxserve.models.qwen3_tts.weights import load_codec, load_language_model
from voxserve.plugin import Checkpoint, Target
from voxserve.requests import SpeechRequest

LIMIT_BYTES = 1_500_000_000
FRAMES = 3


def write(hub_id: str, folder: Path) -> None:
    """The published layout with random weights; the vocabulary is bare bytes."""
    config = plugin.published[hub_id]
    dummy = Checkpoint(hub_id, None, config, dummy=True)
    read = Qwen3Config.read(dummy)
    (folder / "speech_tokenizer").mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "speech_tokenizer" / "config.json").write_text(json.dumps(CODEC))
    vocabulary = {letter: i for i, letter in enumerate(sorted(ByteLevel.alphabet()))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("")
    language = load_language_model(dummy, read, "cpu", torch.bfloat16, finish=False)
    save_file(language.state_dict(), folder / "model.safetensors")
    del language
    codec = load_codec(dummy, read, "cpu", torch.bfloat16, finish=False)
    save_file(codec.state_dict(), folder / "speech_tokenizer" / "model.safetensors")


def speak(folder: Path) -> dict[str, object]:
    """Load, prefill, decode and turn into sound; what it cost."""
    torch.set_num_threads(1)
    weights = sum(file.stat().st_size for file in folder.rglob("*.safetensors"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    checkpoint = Checkpoint("full", folder, json.loads((folder / "config.json").read_text()))
    host = plugin.host(checkpoint)
    start = time.monotonic()
    model = plugin.load(checkpoint, Target("cpu", "bfloat16"))
    loaded = time.monotonic()
    sizes = sizes_for(host.spec, EngineConfig(slots=1, clips=1), "bfloat16")
    state = allocate(host.spec, sizes, "cpu")
    prompt = host.prompt(SpeechRequest(text="Hello.", max_frames=FRAMES))
    rows = np.zeros((1, 32, prompt.rows.shape[1]), np.int64)
    rows[0, : len(prompt.rows)] = prompt.rows
    one = torch.zeros(1, dtype=torch.int64)
    io = {
        "slots": one,
        "lengths": one + len(prompt.rows),
        "rows": torch.from_numpy(rows),
        "sampling": torch.from_numpy(prompt.sampling)[None],
        "seeds": one,
        "ignore_eos": one > 0,
        "clips": one + sizes.clips,
        "pages_kv": torch.arange(sizes.table_pages["kv"])[None],
    }
    codes = [model.prefill(io, state)["codes"]]
    pad = torch.tensor([host.spec.pad_row])
    for step in range(1, FRAMES):
        codes.append(
            model.decode({"slots": one, "steps": one + step, "inject": pad}, state)["codes"]
        )
    frames = torch.stack(codes, dim=1)
    chunk = {"slots": one, "codes": frames, "lengths": one + FRAMES, "fresh": one == 0}
    audio = model.codec(chunk, state)["audio"]
    assert audio.shape == (1, FRAMES * host.spec.samples_per_frame) and audio.isfinite().all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "weights_bytes": weights,
        "peak_bytes": peak,
        "above_weights_bytes": peak - weights,
        "before_load_bytes": before,
        "load_s": round(loaded - start, 1),
        "speak_s": round(time.monotonic() - loaded, 1),
        "first_frame": codes[0][0].tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=("0.6B", "1.7B"), default="0.6B")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--step", choices=("write", "speak"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    hub_id = f"Qwen/Qwen3-TTS-12Hz-{arguments.size}-CustomVoice"
    if arguments.step == "write":
        write(hub_id, arguments.folder)
        return
    if arguments.step == "speak":
        result = {"model": hub_id, **speak(arguments.folder)}
        print(json.dumps(result))
        sys.exit(int(result["above_weights_bytes"] > LIMIT_BYTES))  # type: ignore[operator]
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        for step in ("write", "speak"):
            again = [sys.executable, __file__, "--size", arguments.size]
            subprocess.run([*again, "--folder", str(folder), "--step", step], check=True)


if __name__ == "__main__":
    main()
