"""CosyVoice 3's flow and vocoder at full size: time and rate of every bucket, and where it goes.

    python benchmarks/cosyvoice3_codec.py [--rows 1,2,4,8,16] [--past 7,14] [--sms 88]
        [--breakdown 8] [--plain] [--out FILE]

Needs a GPU. Random weights of the published sizes in bfloat16. First a check: the fused flow and
the plain one over one block behind `--past` others, and both against plain float32; then the two
vocoders in the same way over two chunks. Then a line
for each bucket, of graphs replayed one behind the other: ms of one block of every row behind so
many past ones, ms a chunk, TFLOP/s, and time over the floor (products at 746 TFLOP/s, weights and
pages at 4.62 TB/s). With `--sms` also on a partition. `--breakdown` lists the kernels of a bucket.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from voxserve.engine.green_contexts import partition
from voxserve.models.cosyvoice3.codec_weights import load_flow, load_vocoder
from voxserve.models.cosyvoice3.config import FlowConfig, VocoderConfig
from voxserve.models.cosyvoice3.flow import Flow
from voxserve.models.cosyvoice3.state import BLOCK_FRAMES, flow_state, vocoder_state
from voxserve.models.cosyvoice3.vocoder import Vocoder
from voxserve.plugin import StateTensor

DEVICE = "cuda"
FLOPS, BYTES_S = 746e12, 4.62e12
REPLAYS = 5
FLOW, VOCODER = FlowConfig(), VocoderConfig()
VOCODER_FLOPS = 33.7e9 * 0.92
"""Of 50 frames, its upsampling convolutions folded."""


def numbers(*shape: int) -> Tensor:
    generator = torch.Generator(DEVICE).manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device=DEVICE)


def allocate(tensors: tuple[StateTensor, ...], rows: int, dtype: torch.dtype) -> dict[str, Tensor]:
    return {
        tensor.name: torch.zeros(
            rows + 1,
            *tensor.shape,
            device=DEVICE,
            dtype=dtype if tensor.dtype == "model" else getattr(torch, tensor.dtype),
        )
        for tensor in tensors
    }


class FlowStep:
    """One block of each row behind `past` others; all rows read the same past pages."""

    def __init__(self, flow: Flow, rows: int, past: int, dtype: torch.dtype) -> None:
        self.flow = flow
        pages = tuple(t for t in flow_state(FLOW) if t.scope == "page")
        self.state = allocate(pages, past + rows, dtype)
        for name, cache in self.state.items():
            cache[:past] = numbers(*cache[:past].shape[:1], *cache.shape[1:]).to(dtype)
            assert name.startswith("flow.kv")
        table = torch.arange(past + 1, device=DEVICE).repeat(rows, 1)
        table[:, past] = past + torch.arange(rows, device=DEVICE)
        self.given = (
            torch.randint(FLOW.vocabulary, (rows, 30), device=DEVICE),
            torch.ones(rows, 30, dtype=torch.bool, device=DEVICE),
            torch.zeros(rows, BLOCK_FRAMES, FLOW.mel, device=DEVICE),
            numbers(rows, FLOW.mel),
            torch.full((rows,), BLOCK_FRAMES // 2, device=DEVICE),
            torch.full((rows,), past, device=DEVICE),
            table,
            torch.ones(rows, 1, dtype=torch.bool, device=DEVICE),
            torch.zeros(rows, FLOW.steps, 2, 2, 30, FLOW.dim, device=DEVICE, dtype=dtype),
        )

    @torch.inference_mode()
    def __call__(self) -> Tensor:
        return self.flow.run(*self.given, self.state)[0]


class VocoderStep:
    def __init__(self, vocoder: Vocoder, rows: int, dtype: torch.dtype) -> None:
        self.vocoder = vocoder
        self.state = allocate(vocoder_state(VOCODER), rows, dtype)
        no = torch.zeros(rows, dtype=torch.bool, device=DEVICE)
        lengths = torch.full((rows,), BLOCK_FRAMES, device=DEVICE)
        mel = numbers(rows, BLOCK_FRAMES, VOCODER.mel)
        self.given = (mel, lengths, no, no, torch.arange(rows, device=DEVICE))

    @torch.inference_mode()
    def __call__(self) -> Tensor:
        return self.vocoder.run(*self.given, self.state)


def replayed(step: Callable[[], object], stream: torch.cuda.Stream) -> float:
    """Milliseconds of one replay of the step's graph, the median of a few."""
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    times = []
    for _ in range(REPLAYS + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            begin.record(stream)
            graph.replay()
            end.record(stream)
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times[1:])[REPLAYS // 2]


def flow_floor(rows: int, past: int) -> tuple[float, float]:
    """(FLOP, bytes) of one block of each row."""
    frames = rows * 2 * FLOW.steps * BLOCK_FRAMES
    inner = FLOW.dim * FLOW.ff_mult
    layer = 2 * (4 * FLOW.dim * FLOW.dim + 2 * FLOW.dim * inner)
    position = 2 * 2 * FLOW.dim * (FLOW.dim // 16) * 31
    attention = 4 * FLOW.dim * (past + 1) * BLOCK_FRAMES
    flops = frames * (FLOW.depth * (layer + attention) + position)
    weights = FLOW.depth * layer + position
    page = 2 * 2 * FLOW.dim * BLOCK_FRAMES * 2 * FLOW.steps * FLOW.depth
    return flops, FLOW.steps * weights + rows * (past + 1) * page


def line(what: str, rows: int, ms: float, flops: float, moved: float) -> dict[str, Any]:
    floor = max(flops / FLOPS, moved / BYTES_S) * 1e3
    result = {
        "what": what,
        "rows": rows,
        "ms": round(ms, 3),
        "ms_a_chunk": round(ms / rows, 3),
        "chunks_a_s": round(1e3 * rows / ms),
        "tflops": round(flops / ms / 1e9),
        "over_floor": round(ms / floor, 2),
    }
    print(json.dumps(result), flush=True)
    return result


def breakdown(step: Callable[[], object], name: str) -> None:
    """The kernels of one call, by their share."""
    step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = defaultdict(list)
    for event in profile.events():
        times[event.name].append(event.device_time_total)
    total = sum(sum(each) for each in times.values())
    print(f"{name}: {total / 1e3:.2f} ms in {sum(map(len, times.values()))} kernels")
    for kernel, each in sorted(times.items(), key=lambda item: -sum(item[1]))[:16]:
        print(f"  {sum(each) / 1e3:8.3f} ms {len(each):6d} × {kernel[:90]}")


def check(fused: Flow, plain: Flow, past: int) -> None:
    exact = load_flow(None, FLOW, DEVICE, torch.float32)
    expected = FlowStep(exact, 2, past, torch.float32)()
    for name, flow in (("fused", fused), ("plain", plain)):
        mel = FlowStep(flow, 2, past, torch.bfloat16)()
        error = float((mel - expected).norm() / expected.norm())
        assert mel.isfinite().all()
        print(f"{name} bfloat16 against float32, {past} blocks past: {error:.4f}", flush=True)


def check_vocoders(vocoders: dict[str, Vocoder]) -> None:
    exact = VocoderStep(load_vocoder(None, VOCODER, DEVICE, torch.float32), 2, torch.float32)
    exact()
    expected = exact()
    for name, vocoder in vocoders.items():
        step = VocoderStep(vocoder, 2, torch.bfloat16)
        step()
        error = float((step() - expected).norm() / expected.norm())
        print(f"{name} vocoder, bfloat16 against float32: {error:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="1,2,4,8,16")
    parser.add_argument("--past", default="7,14")
    parser.add_argument("--sms", type=int)
    parser.add_argument("--breakdown", type=int)
    parser.add_argument("--plain", action="store_true", help="time the plain flow too")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    half = torch.bfloat16
    fused = load_flow(None, FLOW, DEVICE, half, fused=True)
    plain = load_flow(None, FLOW, DEVICE, half)
    pasts = [int(n) for n in arguments.past.split(",")]
    check(fused, plain, pasts[0])
    flows = {"fused": fused} | ({"plain": plain} if arguments.plain else {})
    vocoders = {"fused": load_vocoder(None, VOCODER, DEVICE, half, fused=True)}
    vocoders["plain"] = load_vocoder(None, VOCODER, DEVICE, half)
    check_vocoders(vocoders)
    if not arguments.plain:
        del vocoders["plain"]
    streams = {"whole": torch.cuda.Stream()}
    if arguments.sms:
        parts = partition(0, arguments.sms)
        streams[f"{parts.sms['codec']} SMs"] = parts.codec
    results = []
    for place, stream in streams.items():
        for rows in (int(n) for n in arguments.rows.split(",")):
            for past in pasts:
                for name, flow in flows.items():
                    ms = replayed(FlowStep(flow, rows, past, half), stream)
                    what = f"{place}: {name} flow, {past} past"
                    results.append(line(what, rows, ms, *flow_floor(rows, past)))
            for name, vocoder in vocoders.items():
                ms = replayed(VocoderStep(vocoder, rows, half), stream)
                flops = rows * VOCODER_FLOPS
                results.append(line(f"{place}: {name} vocoder", rows, ms, flops, 40e6))
    if arguments.breakdown:
        breakdown(FlowStep(fused, arguments.breakdown, pasts[0], half), "flow")
        breakdown(VocoderStep(vocoders["fused"], arguments.breakdown, half), "vocoder")
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
