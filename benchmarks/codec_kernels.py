"""Qwen3-TTS's codec out of fused kernels: time, rate and ratio to the floor of every bucket.

    python benchmarks/codec_kernels.py [--sms 32] [--rows 1,4,16] [--frames 1,10] [--jobs 8]
        [--breakdown 1x1,16x10] [--sweep 1x2] [--fixed] [--out FILE]

Needs a GPU. Random weights of the published sizes. First the checks: error against float32 over two
streamed chunks (and that of torch's bfloat16), replay equals eager, and the bits of fixed tiles
alone and in a batch. Then a line for each bucket on the whole GPU and on a partition of `--sms`
SMs: `ms` of graphs replayed one behind the other, `alone` of one with nothing before it, µs a
chunk, TFLOP/s, and time over the floor (products at 746 TFLOP/s and weights and state at 4.62
TB/s, both in the share of the SMs). `--fixed` times the tiles of deterministic mode. `--breakdown`
lists the kernels of a bucket; `--sweep` times every tile for every convolution of one, its weights
not in the cache.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voxserve.checkpoints import dummy_weights
from voxserve.engine.green_contexts import partition
from voxserve.kernels.conv_gemm import Tile, conv_gemm, tile_for
from voxserve.kernels.tiles import fixed_tiles, on_sms
from voxserve.kernels.window_attention import StepRows
from voxserve.models.qwen3_tts import fused_codec
from voxserve.models.qwen3_tts.codec import Decoder
from voxserve.models.qwen3_tts.config import CodecDecoder
from voxserve.models.qwen3_tts.fused_codec import FusedDecoder
from voxserve.models.qwen3_tts.fused_weights import FusedWeights
from voxserve.models.qwen3_tts.published import CODEC

CONFIG = CodecDecoder.read(CODEC["decoder_config"])
FLOPS, BYTES_S = 746e12, 4.62e12
DEVICE = "cuda"
SLOTS = 32
TILES = [
    Tile(128, 128, 64, 4, 3),
    Tile(128, 64, 64, 4, 4),
    Tile(64, 128, 64, 4, 4),
    Tile(64, 64, 64, 4, 4),
    Tile(64, 32, 64, 4, 5),
    Tile(64, 32, 128, 4, 4),
    Tile(64, 64, 128, 4, 3),
]
Bucket = tuple[int, int, int]
"""(rows, frames, SMs)."""


def decoder_of(dtype: torch.dtype) -> Decoder:
    """Random weights under which the sound neither dies out nor clips."""

    def moments(name: str, shape: tuple[int, ...]) -> tuple[float, float] | None:
        if "embedding" in name:
            return 0.0, 1.0
        if name.endswith(("usage", "norm.weight", "gamma", "scale")):
            return 1.0, 0.0
        if len(shape) == 1:
            return 0.0, 0.1
        return 0.0, 0.02 if shape[0] == 1 else 0.5 * torch.Size(shape[1:]).numel() ** -0.5

    with torch.device("meta"):
        decoder = Decoder(CONFIG)
    dummy_weights(decoder, device=DEVICE, dtype=torch.bfloat16, moments=moments)
    decoder.finish()
    return decoder if dtype is torch.bfloat16 else decoder.to(dtype)  # the same values


class Slots:
    """A fused decoder and its state; every slot's window is full."""

    def __init__(self, decoder: FusedDecoder) -> None:
        self.decoder = decoder
        size = (SLOTS + 1, CONFIG.conv_state)
        self.conv = torch.zeros(size, device=DEVICE, dtype=torch.bfloat16)
        window = torch.randn(SLOTS + 1, *CONFIG.window_state, device=DEVICE)
        self.window = window.to(torch.bfloat16)
        self.seen = torch.full((SLOTS + 1,), 100, device=DEVICE)

    def step(self, codes: Tensor, *, fresh: bool = False, first: int = 0) -> Callable[[], Tensor]:
        """Decode codes [B, F, K] in slots `first` …, as often as it is called."""
        count, frames, _ = codes.shape
        rows = StepRows(
            torch.arange(first, first + count, device=DEVICE),
            torch.full((count,), frames, device=DEVICE),
            torch.full((count,), fresh, device=DEVICE),
            self.seen,
        )
        return partial(self.decoder.decode, codes, rows, self.conv, self.window)


def codes_of(rows: int, frames: int) -> Tensor:
    generator = torch.Generator(DEVICE).manual_seed(frames)
    shape = (rows, frames, CONFIG.codebooks)
    return torch.randint(CONFIG.codes, shape, device=DEVICE, generator=generator)


def capture(step: Callable[[], object], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    """A graph of `step`, which is called once before."""
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    torch.cuda.synchronize()
    return graph


def timed(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, count: int) -> float:
    """Milliseconds of `count` replays, one behind the other."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        begin.record(stream)
        for _ in range(count):
            graph.replay()
        end.record(stream)
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def error(audio: Tensor, exact: Tensor) -> float:
    return float((audio.float() - exact).norm() / exact.norm())


def one_shot(decoder: Decoder, codes: Tensor, dtype: torch.dtype) -> Tensor:
    count, frames, _ = codes.shape
    flat = torch.zeros(count, CONFIG.conv_state, device=DEVICE, dtype=dtype)
    past = torch.zeros(count, *CONFIG.window_state, device=DEVICE, dtype=dtype)
    none = torch.zeros(count, dtype=torch.int64, device=DEVICE)
    audio: Tensor = decoder(codes, flat, past, none, none + frames)[0]
    return audio


def check(slots: Slots, eager: Decoder, stream: torch.cuda.Stream) -> dict[str, object]:
    """What the module's docstring says of the checks."""
    codes = codes_of(2, 20)
    exact = one_shot(decoder_of(torch.float32), codes, torch.float32)
    parts = [
        slots.step(codes[:, at : at + 10].contiguous(), fresh=at == 0)().clone() for at in (0, 10)
    ]
    short = codes_of(1, 2)
    expected = slots.step(short, fresh=True)().clone()
    step = slots.step(short, fresh=True)
    kept: list[Tensor] = []
    graph = capture(lambda: kept.append(step()), stream)
    with torch.cuda.stream(stream):
        graph.replay()
    torch.cuda.synchronize()
    batch, same = codes_of(8, 4), True
    with fixed_tiles():
        whole = slots.step(batch, fresh=True)().clone()
        for row in range(8):
            with on_sms(32):
                alone = slots.step(batch[row : row + 1], fresh=True, first=row)()
            same &= torch.equal(alone[0], whole[row])
    return {
        "error": error(torch.cat(parts, dim=1), exact),
        "error_torch_bf16": error(one_shot(eager, codes, torch.bfloat16), exact),
        "largest": float(exact.abs().max()),
        "replay_equals_eager": torch.equal(kept[-1], expected),
        "fixed_tiles_same_bits": same,
    }


def flops_of(weights: FusedWeights) -> int:
    """Of one frame, additions and multiplications of the products."""
    columns, total = 1, weights.pre.weight.numel()
    for layer in weights.layers:
        parts = (layer.qkv, layer.out, layer.gate_up, layer.down)
        total += sum(part.weight.numel() for part in parts)
    for early in weights.early:
        total += early.up.weight.numel() * columns
        columns *= early.up.up
        total += (early.widen.weight.numel() + early.narrow.weight.numel()) * columns
    total += weights.first.weight.numel() * columns
    for block in weights.blocks:
        total += block.up.weight.numel() * columns
        columns *= block.up.up
        for unit in block.units:
            total += (unit.first.weight.numel() + unit.second.weight.numel()) * columns
    return 2 * total


def floor_ms(bucket: Bucket, flops: int, all_sms: int) -> float:
    rows, frames, sms = bucket
    share = sms / all_sms
    parameters = 114.3e6 - 8.9e6  # but for the codebooks, of which few vectors are read
    moved = 2 * (
        parameters + rows * (2 * CONFIG.conv_state + torch.Size(CONFIG.window_state).numel())
    )
    return 1e3 * max(rows * frames * flops / (FLOPS * share), moved / BYTES_S)


def measure(slots: Slots, bucket: Bucket, stream: torch.cuda.Stream) -> tuple[float, float]:
    """Milliseconds of a replay: among others, and alone (median)."""
    rows, frames, sms = bucket
    with on_sms(sms):
        graph = capture(slots.step(codes_of(rows, frames)), stream)
    timed(graph, stream, 3)
    count = max(5, min(50, int(30 / timed(graph, stream, 1))))
    alone = statistics.median(timed(graph, stream, 1) for _ in range(15))
    return timed(graph, stream, count) / count, alone


def breakdown(slots: Slots, bucket: Bucket) -> list[tuple[str, int, float]]:
    """(kernel and grid, calls, µs in all), longest first."""
    rows, frames, sms = bucket
    step = slots.step(codes_of(rows, frames))
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with on_sms(sms):
        step()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=activities) as profile:
            step()
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "kernel":
            found[f"{event['name']} {event['args'].get('grid')}"].append(event["dur"])
    lines = [(name, len(times), sum(times)) for name, times in found.items()]
    return sorted(lines, key=lambda line: -line[2])


def sweep(slots: Slots, bucket: Bucket, stream: torch.cuda.Stream) -> list[dict[str, object]]:
    """For each convolution of the bucket, µs with every tile that fits."""
    rows, frames, sms = bucket
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def record(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))
        conv_gemm(*args, **kwargs)

    fused_codec.conv_gemm = record
    with on_sms(sms):
        slots.step(codes_of(rows, frames))()
    fused_codec.conv_gemm = conv_gemm
    junk = torch.zeros(2, 32 * 2**20, device=DEVICE)
    repeats, lines, done = 8, [], set()

    def cost(call: Callable[[], None] | None) -> float:
        def run() -> None:
            for _ in range(repeats):
                junk[0].copy_(junk[1])
                if call:
                    call()

        graph = capture(run, stream)
        timed(graph, stream, 1)
        return min(timed(graph, stream, 1) for _ in range(3)) / repeats * 1e3

    empty = cost(None)
    for args, kwargs in calls:
        src, weights = args
        columns, inputs = weights.weight.shape[0], src.channels
        key = (src.rows * src.stride, columns, inputs, weights.taps)
        if (kind := (columns, inputs, weights.taps)) in done:
            continue
        done.add(kind)
        with on_sms(sms):
            chosen = tile_for(*key)
        costs = {
            f"{tile.rows}x{tile.columns}x{tile.depth}": round(
                cost(partial(conv_gemm, *args, **kwargs, tile=tile)) - empty, 1
            )
            for tile in TILES
            if inputs % tile.depth == 0
        }
        name = f"{chosen.rows}x{chosen.columns}x{chosen.depth}"
        lines.append({"rows,columns,inputs,taps": key, "chosen": name, "us": costs})
    return lines


def warm(buckets: Sequence[Bucket], fixed: bool) -> None:
    """Compile what the buckets need into the cache on disk."""
    with torch.inference_mode(), fixed_tiles(fixed):
        slots = Slots(FusedDecoder(decoder_of(torch.bfloat16)))
        for rows, frames, sms in buckets:
            with on_sms(sms):
                slots.step(codes_of(rows, frames))()
        torch.cuda.synchronize()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time the codec's fused kernels.")
    parser.add_argument("--sms", type=int, default=32)
    parser.add_argument("--rows", default="1,2,4,8,16,32")
    parser.add_argument("--frames", default="1,2,4,10")
    parser.add_argument("--jobs", type=int, default=8, help="processes that compile beforehand")
    parser.add_argument("--breakdown", default="1x1,1x10,16x10", help="rows x frames, …")
    parser.add_argument("--sweep", default="", help="rows x frames, …")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def pairs(text: str) -> list[tuple[int, int]]:
    found = [part.split("x") for part in text.split(",") if part]
    return [(int(rows), int(frames)) for rows, frames in found]


@torch.inference_mode()
def main() -> None:
    options = parse()
    parts = partition(0, options.sms)
    whole, part = parts.sms["whole"], parts.sms["codec"]
    streams = {whole: parts.urgent, part: parts.codec}
    sizes = [(int(r), int(f)) for r in options.rows.split(",") for f in options.frames.split(",")]
    buckets = [(rows, frames, sms) for sms in streams for rows, frames in sizes]
    if options.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            shares = [buckets[i :: options.jobs] for i in range(options.jobs)]
            pool.map(partial(warm, fixed=options.fixed), shares)
    torch.backends.cudnn.allow_tf32 = False
    eager = decoder_of(torch.bfloat16)
    slots = Slots(FusedDecoder(eager))
    checks = check(slots, eager, parts.urgent)
    print(json.dumps(checks), flush=True)
    flops, lines = flops_of(slots.decoder.weights), []
    print("rows frames  sms      ms   alone  us/chunk  TFLOP/s  x floor")
    with fixed_tiles(options.fixed):
        for bucket in buckets:
            rows, frames, sms = bucket
            ms, alone = measure(slots, bucket, streams[sms])
            rate, ratio = rows * frames * flops / ms / 1e9, ms / floor_ms(bucket, flops, whole)
            print(
                f"{rows:4} {frames:6} {sms:4} {ms:7.3f} {alone:7.3f} {1e3 * ms / rows:9.1f} "
                f"{rate:8.1f} {ratio:8.2f}",
                flush=True,
            )
            lines.append({"bucket": bucket, "ms": ms, "alone_ms": alone, "ratio": ratio})
        for rows, frames in pairs(options.breakdown):
            print(f"kernels of {rows} x {frames} on {whole} SMs")
            for name, calls, us in breakdown(slots, (rows, frames, whole))[:25]:
                print(f"{us:8.1f} us {calls:3} {name}", flush=True)
        for rows, frames in pairs(options.sweep):
            for sms, stream in streams.items():
                for line in sweep(slots, (rows, frames, sms), stream):
                    print(rows, frames, sms, json.dumps(line), flush=True)
    if options.out:
        device = torch.cuda.get_device_name()
        versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "device": device}
        report = {"fixed": options.fixed, "checks": checks, "buckets": lines}
        options.out.write_text(json.dumps(versions | report, indent=1))


if __name__ == "__main__":
    main()
