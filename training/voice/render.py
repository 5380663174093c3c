"""Speak every sentence with the teacher: 24 kHz audio and the duration of every phoneme.

Each worker writes shards: `wWWW-KKKK.pcm` (int16), then `wWWW-KKKK.npz` (`ids`, `units`, `natural`
per phoneme; `index`, `phonemes`, `frames` per sentence), so training can start beside it.
A unit is 25 ms (600 samples); a frame of the voice is two units.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np

UNIT_SAMPLES = 600
FRAME_SAMPLES = 1200
LEAD_UNITS = 3  # the teacher starts with 0.3 s of silence; a listener need not wait for it
GAIN = 1.25
SHARD_SENTENCES = 256
DURATIONS = "/Div_40_output_0"  # in the teacher's graph: units before rounding
ROUNDED = "/Clip_output_0"


def worker(
    rank: int, world: int, source: Path, out: Path, limit: int, seconds: float, steady: bool
) -> None:
    """Render sentences rank, rank + world, ... until `limit` or the time is over."""
    import onnx
    import onnxruntime
    from hibari import dsp
    from hibari.tts import ASSETS

    graph = onnx.load(f"{ASSETS}/hibari.onnx")
    for name in (DURATIONS, ROUNDED):
        graph.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    vocab = json.loads(Path(ASSETS, "vocab.json").read_text("utf-8"))
    start, shard, kept = time.monotonic(), 0, []
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        for at, line in enumerate(lines):
            if at >= limit or time.monotonic() - start > seconds:
                break
            if at % world != rank:
                continue
            index, phonemes, _ = line.rstrip("\n").split("\t")
            rng = np.random.default_rng(int(index))
            speed = 1.0 if rng.random() < 0.85 or steady else float(rng.uniform(0.8, 1.25))
            ids = np.array([0, *(vocab[c] for c in phonemes), 0], np.int64)
            feed = {"ids": ids[None], "speed": np.array([speed], np.float32)}
            *parts, natural, units = session.run(None, feed)
            audio = dsp.synth(*(p[0] for p in parts), rng)
            units = units.ravel().astype(np.int16)
            cut = max(0, int(units[0]) - LEAD_UNITS)
            units[0] -= cut
            audio = audio[cut * UNIT_SAMPLES :]
            frames = -(-len(audio) // FRAME_SAMPLES)
            audio = np.pad(audio, (0, frames * FRAME_SAMPLES - len(audio)))
            pcm = (np.clip(audio * GAIN, -1, 1) * 32767).astype(np.int16)
            natural = natural.ravel() * speed
            natural[0] = LEAD_UNITS
            sentence = (pcm, ids.astype(np.uint8), units, natural.astype(np.float16), frames)
            kept.append((*sentence, int(index)))
            if len(kept) == SHARD_SENTENCES:
                save(out / f"w{rank:03d}-{shard:04d}.npz", kept)
                shard, kept = shard + 1, []
    if kept:
        save(out / f"w{rank:03d}-{shard:04d}.npz", kept)


def save(path: Path, kept: list) -> None:
    pcm, ids, units, natural, frames, index = zip(*kept, strict=True)
    np.concatenate(pcm).tofile(path.with_suffix(".pcm"))
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez(
            file,
            ids=np.concatenate(ids),
            units=np.concatenate(units),
            natural=np.concatenate(natural),
            index=np.array(index, np.int32),
            phonemes=np.array([len(i) for i in ids], np.int32),
            frames=np.array(frames, np.int32),
        )
    os.replace(temporary, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phonemes", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--steady", action="store_true", help="all at the teacher's own speed")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    jobs = [
        context.Process(
            target=worker,
            args=(
                *(r, args.workers, args.phonemes, args.out),
                *(args.limit, args.seconds, args.steady),
            ),
        )
        for r in range(args.workers)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    (args.out / "finished").touch()


if __name__ == "__main__":
    main()
