"""Find the fastest tiles for every linear map of Qwen3-TTS's LM, on all SMs and on a partition.

    python benchmarks/lm_tiles.py --out kernels/linear_table.py [--codec-sms 32] [--workers 14]
                                  [--rows 16 32 64 128 256] [--model 1b7 | 0b6 | higgs]

Worker processes first compile all candidates, which takes most of the time; then each is timed in a
captured graph that goes through more weights than the L2 cache holds. What was measured for other
sizes stays in the table. Prints a line a map: the best
tiles, their time, the bytes of weights a second, and the time of torch's own matmul.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources, PTXASError

from voxserve.engine.green_contexts import partition
from voxserve.kernels.linear import gate_up, linear, residual
from voxserve.kernels.linear_plans import Kind, Plan
from voxserve.kernels.linear_table import MEASURED
from voxserve.kernels.stream import Stream, new_stream

Map = tuple[Kind, int, int]
MAPS: dict[str, list[Map]] = {
    size: [
        ("linear", fused, hidden),
        ("residual", hidden, attention),
        ("gate_up", inner, hidden),
        ("residual", hidden, inner),
        *(("linear", count, hidden) for count in codes),
    ]
    for size, hidden, fused, attention, inner, codes in (
        ("1b7", 2048, 4096, 2048, 6144, (3072,)),
        ("0b6", 1024, 4096, 2048, 3072, (3072,)),
        ("depth", 1024, 4096, 2048, 3072, (2048,)),
        ("higgs", 2560, 6144, 4096, 9728, ()),
    )
}
"""Of Qwen3-TTS's two talkers and its depth transformer, and of Higgs Audio v3, whose head has a
width that only the smallest tiles divide."""
COLD_BYTES = 200_000_000
SHARED_BYTES = 227 * 1024


def candidates(kind: Kind, columns: int, depth: int, rows: int) -> Iterator[Plan]:
    """Tiles worth a try. Two ways to use shared memory: one deep program an SM, or two."""
    pair = kind == "gate_up"
    for tall in {min(rows, 64), min(rows, 128)}:
        for wide in (32, 64, 128):
            if columns % wide or (pair and wide == 128) or tall * wide > 128 * 128:
                continue
            for step in (64, 128, 256) if tall <= 32 else (64, 128):
                for split in (1, 2, 3, 4, 6, 8) if kind == "residual" else (1,):
                    if depth % (split * step) or depth // split < max(256, 2 * step):
                        continue
                    if not 40 <= rows // tall * (columns // wide) * split <= 600:
                        continue
                    tile = (tall + wide * (2 if pair else 1)) * step * 2
                    depths = {min(8, SHARED_BYTES // part // tile) for part in (1, 2)}
                    for stages in depths:
                        if stages < 2:
                            continue
                        wider = tall * wide * (2 if pair else 1) >= 128 * 64
                        for warps in (4, 8) if wider else (4,):
                            yield Plan(tall, wide, step, split, stages, warps)


class Problem:
    """One map over weights that no cache holds."""

    def __init__(self, kind: Kind, columns: int, depth: int, rows: int, *, copies: int = 0) -> None:
        high = columns * (2 if kind == "gate_up" else 1)
        self.copies = copies or max(4, COLD_BYTES // (high * depth * 2))
        make = dict(device="cuda", dtype=torch.bfloat16)
        self.kind, self.rows = kind, rows
        self.a = torch.randn(rows, depth, **make) * 0.1
        self.weights = [torch.randn(high, depth, **make) * 0.02 for _ in range(self.copies)]
        self.out = torch.empty(rows, high, **make)
        self.gain = torch.ones(columns, **make)
        self.arrived = torch.zeros(4096, dtype=torch.int32, device="cuda")
        like = self.a
        self.input = Stream(like, like.float(), torch.ones(rows, 1, device="cuda"))
        self.stream = new_stream(rows, columns, 1, like)

    def call(self, w: Tensor, plan: Plan) -> None:
        if self.kind == "linear":
            linear(self.a, w, tiles=plan)
        elif self.kind == "gate_up":
            gate_up(self.input, w, 1e-6, plan)
        else:
            residual(self.a, w, self.stream, self.gain, self.arrived, plan)

    def library(self, w: Tensor) -> None:
        torch.mm(self.a, w.t(), out=self.out)

    def time_us(self, call: Callable[[Tensor], object], stream: torch.cuda.Stream) -> float:
        """Microseconds of one call, the best of a few replays."""
        with torch.cuda.stream(stream):
            call(self.weights[0])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for w in self.weights:
                call(w)
        best = float("inf")
        for _ in range(4):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with torch.cuda.stream(stream):
                start.record()
                graph.replay()
                end.record()
            torch.cuda.synchronize()
            best = min(best, start.elapsed_time(end) * 1e3 / self.copies)
        return best


def problems(size: str, rows: list[int]) -> list[tuple[Kind, int, int, int]]:
    maps = [*MAPS[size], *(MAPS["depth"] if size in ("1b7", "0b6") else ())]
    return [(*one, high) for one in maps for high in rows]


def compile_part(size: str, rows: list[int], part: int, parts: int) -> None:
    """Compile every `parts`-th candidate; the cache on disk keeps them."""
    number = 0
    for kind, columns, depth, high in problems(size, rows):
        problem = None
        for plan in candidates(kind, columns, depth, high):
            number += 1
            if number % parts == part:
                problem = problem or Problem(kind, columns, depth, high, copies=1)
                tried(problem, plan)
    torch.cuda.synchronize()


def tried(problem: Problem, plan: Plan) -> bool:
    """Whether the tiles fit the GPU."""
    try:
        problem.call(problem.weights[0], plan)
    except (OutOfResources, PTXASError):
        return False
    return True


HEAD = '''"""Tiles that measured fastest, as `benchmarks/lm_tiles.py` writes them.

(kind, N, K, rows, SMs) -> rows, columns and depth of a tile, split, stages, warps.
"""

'''


def write(path: Path, table: dict[tuple[str, int, int, int, int], Plan]) -> None:
    lines = []
    for key, plan in sorted(table.items()):
        cut = (plan.rows, plan.columns, plan.depth, plan.split, plan.stages, plan.warps)
        name = ", ".join([f'"{key[0]}"', *map(str, key[1:])])
        lines.append(f"    ({name}): {cut},\n")
    kind = "dict[tuple[str, int, int, int, int], tuple[int, int, int, int, int, int]]"
    path.write_text(f"{HEAD}MEASURED: {kind} = {{\n{''.join(lines)}}}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--codec-sms", type=int, nargs="+", default=[32])
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 32, 64, 128, 256])
    parser.add_argument("--model", choices=("1b7", "0b6", "higgs"), default="1b7")
    parser.add_argument("--compile", type=int)
    args = parser.parse_args()
    if args.compile is not None:
        compile_part(args.model, args.rows, args.compile, args.workers)
        return
    begin = time.monotonic()
    command = [sys.executable, *sys.argv]
    others = [subprocess.Popen([*command, "--compile", str(part)]) for part in range(args.workers)]
    failed = [other.args for other in others if other.wait()]
    print(f"compiled in {time.monotonic() - begin:.0f} s, {len(failed)} workers failed", flush=True)
    targets = []
    for count in args.codec_sms:
        parts = partition(0, count)
        targets += [(parts.sms["lm"], parts.lm, parts)]
    targets += [(parts.sms["whole"], parts.whole, parts)]
    table = {key: Plan(*cut) for key, cut in MEASURED.items()}
    for kind, columns, depth, high in problems(args.model, args.rows):
        problem = Problem(kind, columns, depth, high)
        fit = [p for p in candidates(kind, columns, depth, high) if tried(problem, p)]
        problem.arrived.zero_()
        for sms, stream, _ in targets:
            timed = sorted(
                ((problem.time_us(partial(problem.call, plan=one), stream), one) for one in fit),
                key=lambda pair: pair[0],
            )
            library = problem.time_us(problem.library, stream)
            spent, plan = timed[0]
            table[kind, columns, depth, high, sms] = plan
            rate = problem.weights[0].nbytes / spent / 1e6
            print(
                f"{kind:8} N {columns:5} K {depth:5} rows {high:3} SMs {sms:3}: {spent:6.2f} us "
                f"({rate:.2f} TB/s), torch.mm {library:6.2f} us, {plan}",
                flush=True,
            )
        write(args.out, table)
    print(f"done in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
