"""How long CosyVoice 3 takes to encode a reference clip, with random weights of the real size.

    python -m benchmarks.cosyvoice3_clip_encoder [--device cpu | cuda] [--rows 1,4] [--repeat 20]

Prints one JSON line: seconds to load the two ONNX files, milliseconds of each bucket and number of
rows (eager, and on CUDA as a captured graph), what the S3 tokenizer alone takes of them, and how
many codes of a 6.9 s clip differ from the CPU's.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tests.models.cosyvoice3.clip_checkpoint import SpeakerShape, TokenizerShape, write_onnx
from tests.parity.qwen3_tts.checkpoint import speech_like
from voxserve.models.cosyvoice3.encoder import CLIP_HZ, ClipEncoder, load_clip_encoder
from voxserve.plugin import Checkpoint

CLIP_S = 6.9
BUCKETS_S = (5, 10, 30)


def clip(rows: int, bucket_s: int, device: str) -> tuple[Tensor, Tensor]:
    """(audio [rows, samples], lengths) of a clip in its bucket."""
    sound = torch.from_numpy(speech_like(min(CLIP_S, bucket_s)))
    audio = torch.zeros(rows, bucket_s * CLIP_HZ)
    audio[:, : len(sound)] = sound
    return audio.to(device), torch.full((rows,), len(sound), device=device)


def milliseconds(run: Callable[[], object], repeat: int, device: str) -> float:
    """Median of one call."""
    taken = []
    for _ in range(repeat):
        begin = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(1000 * (time.perf_counter() - begin))
    return round(statistics.median(taken), 2)


def captured(run: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of one call."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def measure(
    encoder: ClipEncoder, rows: int, bucket_s: int, repeat: int, device: str
) -> dict[str, object]:
    audio, lengths = clip(rows, bucket_s, device)
    heard, heard_lengths = encoder.resample(audio), encoder.resample.lengths(lengths)

    def tokenize() -> None:
        encoder.tokenizer(*encoder.whisper_mel(heard, heard_lengths))

    encoder(audio, lengths)
    found: dict[str, object] = {"rows": rows, "bucket_s": bucket_s}
    found["eager_ms"] = milliseconds(lambda: encoder(audio, lengths), repeat, device)
    found["tokenizer_ms"] = milliseconds(tokenize, repeat, device)
    if device == "cuda":
        found["graph_ms"] = milliseconds(
            captured(lambda: encoder(audio, lengths)).replay, repeat, device
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", default="1,4")
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    device = arguments.device
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        write_onnx(Path(scratch), TokenizerShape(), SpeakerShape())
        checkpoint = Checkpoint("random", Path(scratch), {})
        begin = time.perf_counter()
        encoder = load_clip_encoder(checkpoint, device)
        report: dict[str, object] = {"device": device, "load_s": time.perf_counter() - begin}
        on_cpu = encoder if device == "cpu" else load_clip_encoder(checkpoint, "cpu")
        expected = on_cpu(*clip(1, 10, "cpu"))
        made = encoder(*clip(1, 10, device))
        differing = int((made.codes.cpu() != expected.codes).sum())
        report |= {"codes": int(expected.count[0]), "codes_that_differ": differing}
        report["speaker_difference"] = float((made.speaker.cpu() - expected.speaker).abs().max())
        report["runs"] = [
            measure(encoder, int(rows), bucket_s, arguments.repeat, device)
            for rows in arguments.rows.split(",")
            for bucket_s in BUCKETS_S
        ]
    print(json.dumps(report))


if __name__ == "__main__":
    main()
