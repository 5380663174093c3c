"""A CosyVoice 3 folder of real size with random bf16 weights: load it on a CPU, speak 8 codes.

    python benchmarks/cosyvoice3_full_size.py [--folder FOLDER] [--device cpu]

Writes the folder first (3.2 GB, deleted again unless named), then loads it in a process of its own,
encodes the reference clip, speaks behind it, and prints one JSON line: bytes of weights and memory,
seconds, and the codes.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
CODES = 8


def speak(folder: Path, device: str) -> dict[str, Any]:
    """Load, encode, prefill, decode and turn into sound; what it cost."""
    from voxserve.checkpoints import find
    from voxserve.config import EngineConfig
    from voxserve.engine.memory import allocate, sizes_for
    from voxserve.plugin import Target
    from voxserve.requests import ReferenceClip, SpeechRequest

    torch.set_num_threads(2)
    start = time.monotonic()
    plugin, checkpoint = find(str(folder), dummy=False)
    host = plugin.host(checkpoint)
    model = plugin.load(checkpoint, Target(device, "bfloat16"))
    loaded = time.monotonic()
    recording, rate_hz = soundfile.read(HERE / "reference_clip" / "clip.wav", dtype="float32")
    heard = soxr.resample(recording, rate_hz, 24_000)
    words = (HERE / "reference_clip" / "transcript.txt").read_text().strip()
    clip = ReferenceClip("clip", heard, words)
    sizes = sizes_for(host.spec, EngineConfig(slots=1, clips=1, context=512), "bfloat16", device)
    state = allocate(host.spec, sizes, device)
    one = torch.zeros(1, dtype=torch.int64, device=device)
    padded = torch.zeros(1, 10 * 24_000, device=device)
    padded[0, : len(heard)] = torch.from_numpy(heard)
    flow = sizes.clip_table_pages["flow"]
    blocks = torch.arange(sizes.table_pages["flow"], device=device)[None]
    audio = {"clips": one, "audio": padded, "lengths": one + len(heard)}
    model.encode({**audio, "pages_flow": blocks[:, :flow]}, state)
    encoded = time.monotonic()
    prompt = host.prompt(SpeechRequest(text="Hello.", clip=clip, max_frames=CODES))
    rows = np.zeros((1, 512, prompt.rows.shape[1]), np.int64)
    rows[0, : len(prompt.rows)] = prompt.rows
    io = {
        "slots": one,
        "lengths": one + len(prompt.rows),
        "rows": torch.from_numpy(rows).to(device),
        "sampling": torch.from_numpy(prompt.sampling)[None].to(device),
        "seeds": one,
        "ignore_eos": one == 0,
        "clips": one,
        "pages_kv": torch.arange(sizes.table_pages["kv"], device=device)[None],
        "pages_flow": blocks,
    }
    said = [model.prefill(io, state)["codes"]]
    for step in range(1, CODES):
        said.append(
            model.decode({"slots": one, "steps": one + step, "inject": one[None]}, state)["codes"]
        )
    spoken = time.monotonic()
    chunk = torch.zeros(1, 30, 1, dtype=torch.int64, device=device)
    chunk[0, 2 : 2 + CODES] = torch.cat(said)
    at = torch.arange(30, device=device)[None]
    codec = {
        "slots": one,
        "codes": chunk,
        "valid": (at >= 2) & (at < 2 + CODES),
        "lengths": one + CODES,
        "first_frame": one,
        "fresh": one == 0,
        "last": one == 0,
    }
    sound = model.codec(codec, state)["audio"][0, : CODES * 960].cpu()
    assert bool(sound.isfinite().all()) and float(sound.std()) > 0
    return {
        "weights_bytes": sum(file.stat().st_size for file in folder.glob("*.[po][tn]*")),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "load_s": round(loaded - start, 1),
        "encode_s": round(encoded - loaded, 1),
        "speak_s": round(spoken - encoded, 1),
        "sound_s": round(time.monotonic() - spoken, 1),
        "codes": torch.cat(said)[:, 0].tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--step", choices=("write", "speak"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step == "write":
        from tests.models.cosyvoice3.checkpoint import make_full_checkpoint

        chosen.folder.mkdir(parents=True, exist_ok=True)
        make_full_checkpoint(chosen.folder)
        return
    if chosen.step == "speak":
        print(json.dumps(speak(chosen.folder, chosen.device)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.folder or Path(scratch)
        for step in ("write", "speak"):
            again = [sys.executable, __file__, "--folder", str(folder), "--device", chosen.device]
            subprocess.run([*again, "--step", step], check=True)


if __name__ == "__main__":
    main()
