"""Find the fastest tiles for every linear map of a model's LM, on all SMs and on a partition.

    python benchmarks/lm_tiles.py --out kernels/linear_table.py [--codec-sms 32] [--workers 14]
                                  [--rows 16 32 64 128 192 256] [--shapes 5] [--only-partitions]
                                  [--model 1b7 | 0b6 | higgs | cosyvoice3] [--count]

Of all ways to cut a map, the few that a rule of thumb ranks first are tried (`--shapes` says how
many), each with several steps and depths. Worker processes first compile them, which takes most of
the time; then each is timed in a captured graph that goes through more weights than the L2 cache
holds. Tiles that serve the map at other rows already win unless others are clearly faster: every
other kernel has to be compiled when a server first starts. What was measured for other sizes stays
in the table. Prints a line a map: the best tiles, their time, the bytes of weights a second, and
the time of torch's own matmul. `--codec-sms` takes several partitions; `--only-partitions` leaves
all SMs out. `--count` says how much there is to do, without a GPU.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor
from triton.runtime.errors import OutOfResources, PTXASError

from voxserve.engine.green_contexts import partition
from voxserve.kernels.linear import gate_up, linear, residual
from voxserve.kernels.linear_plans import MEASURED_ROWS, Kind, Plan
from voxserve.kernels.linear_table import MEASURED
from voxserve.kernels.stream import Stream, new_stream, padded
from voxserve.kernels.tiles import WITHOUT_GPU_SMS

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
        ("cosyvoice3", 896, 1152, 896, 4864, (6784,)),
    )
}
"""Of Qwen3-TTS's two talkers and its depth transformer, of Higgs Audio v3, whose head has a width
that only the smallest tiles divide, and of CosyVoice 3, whose head is filled up to 53 tiles."""
COLD_BYTES = 200_000_000
SHARED_BYTES = 227 * 1024
CLEARLY = 1.015
"""So many times slower than the fastest are tiles that need no kernel of their own."""

Shape = tuple[int, int, int]
"""Rows and columns of a tile, and parts of K."""


def shapes(kind: Kind, columns: int, depth: int, rows: int, least: int = 40) -> Iterator[Shape]:
    """Every way to cut a map into at least so many programs."""
    pair = kind == "gate_up"
    for tall in (rows,) if rows <= 32 else (32, 64, 128):
        if rows % tall:
            continue
        for wide in (32, 64, 128):
            if columns % wide or (pair and wide == 128):
                continue
            for split in (1, 2, 3, 4, 6, 8) if kind == "residual" else (1,):
                if depth % (split * 64) or depth // split < 256:
                    continue
                if least <= rows // tall * (columns // wide) * split <= 1200:
                    yield tall, wide, split


def effort(kind: Kind, columns: int, depth: int, rows: int, sms: int, shape: Shape) -> float:
    """Values that an SM takes in, and its share of what the parts leave for the last to add.

    Of 100 maps that were measured, the fastest tiles were of the first shape by this rule 70 times,
    and always of the first six.
    """
    tall, wide, split = shape
    taken = (tall + wide * (2 if kind == "gate_up" else 1)) * depth / split
    each = rows // tall * (columns // wide) * split / sms
    left = 32 * rows * columns * (split + 1) / sms if split > 1 else 0
    return (0.8 * -(-each // 1) + 0.2 * max(each, 1)) * taken + left


def variants(kind: Kind, depth: int, shape: Shape) -> Iterator[Plan]:
    """Two ways to use shared memory: one deep program an SM, or two."""
    tall, wide, split = shape
    width = wide * (2 if kind == "gate_up" else 1)
    for step in (64, 128, 256) if tall <= 32 else (64, 128):
        if depth % (split * step) or depth // split < 2 * step:
            continue
        tile = (tall + width) * step * 2
        for stages in {min(8, SHARED_BYTES // part // tile) for part in (1, 2)}:
            for warps in (4, 8) if tall * width >= 128 * 64 else (4,):
                if stages >= 2:
                    yield Plan(tall, wide, step, split, stages, warps)


@cache
def candidates(
    kind: Kind, columns: int, depth: int, rows: int, sms: tuple[int, ...], most: int
) -> tuple[Plan, ...]:
    """Tiles worth a try: of the `most` shapes that rank first on each number of SMs."""
    chosen: dict[Plan, None] = {}
    ways = list(shapes(kind, columns, depth, rows)) or list(shapes(kind, columns, depth, rows, 1))
    for count in sms:
        ways.sort(key=partial(effort, kind, columns, depth, rows, count))
        chosen |= {plan: None for shape in ways[:most] for plan in variants(kind, depth, shape)}
    return tuple(chosen)


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


def kernels(
    size: str, rows: list[int], sms: tuple[int, ...], most: int
) -> list[tuple[Kind, int, int, int, Plan]]:
    """Candidates that differ in what is compiled, which rows do not."""
    found = {}
    for kind, columns, depth, high in problems(size, rows):
        for plan in candidates(kind, columns, depth, high, sms, most):
            found[kind, columns, depth, plan] = kind, columns, depth, high, plan
    return list(found.values())


def compile_part(work: list[tuple[Kind, int, int, int, Plan]]) -> None:
    """Compile; the cache on disk keeps the kernels."""
    for kind, columns, depth, high, plan in work:
        tried(Problem(kind, columns, depth, high, copies=1), plan)
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


def fastest(timed: list[tuple[float, Plan]], known: set[Plan]) -> tuple[float, Plan]:
    """Microseconds and tiles."""
    return min(timed, key=lambda pair: pair[0] * (1.0 if pair[1] in known else CLEARLY))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--codec-sms", type=int, nargs="+", default=[32])
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--rows", type=int, nargs="+", default=list(MEASURED_ROWS))
    parser.add_argument("--shapes", type=int, default=5)
    parser.add_argument("--model", choices=sorted(MAPS), default="1b7")
    parser.add_argument("--only-partitions", action="store_true")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--compile", type=int)
    return parser.parse_args()


def main() -> None:
    args = options()
    begin = time.monotonic()
    rows = sorted({padded(count) for count in args.rows})
    whole = WITHOUT_GPU_SMS
    if torch.cuda.is_available():
        whole = torch.cuda.get_device_properties(0).multi_processor_count
    sms = tuple(whole - count for count in args.codec_sms)
    sms += () if args.only_partitions else (whole,)
    work = kernels(args.model, rows, sms, args.shapes)
    if args.compile is not None:
        compile_part(work[args.compile :: args.workers])
        return
    maps = problems(args.model, rows)
    timings = sum(len(candidates(*one, sms, args.shapes)) for one in maps) * len(sms)
    print(f"{len(work)} kernels to compile, {timings} timings of {len(maps)} maps", flush=True)
    if args.count:
        return
    command = [sys.executable, *sys.argv]
    others = [subprocess.Popen([*command, "--compile", str(part)]) for part in range(args.workers)]
    failed = [other.args for other in others if other.wait()]
    print(f"compiled in {time.monotonic() - begin:.0f} s, {len(failed)} workers failed", flush=True)
    targets = []
    for count in args.codec_sms:
        parts = partition(0, count)
        targets += [(parts.sms["lm"], parts.lm, parts)]
    if not args.only_partitions:
        targets += [(parts.sms["whole"], parts.whole, parts)]
    table = {key: Plan(*cut) for key, cut in MEASURED.items()}
    for kind, columns, depth, high in maps:
        problem = Problem(kind, columns, depth, high)
        tries = candidates(kind, columns, depth, high, sms, args.shapes)
        fit = [plan for plan in tries if tried(problem, plan)]
        problem.arrived.zero_()
        for count, stream, _ in targets:
            timed = [(problem.time_us(partial(problem.call, plan=p), stream), p) for p in fit]
            known = {plan for key, plan in table.items() if key[:3] == (kind, columns, depth)}
            library = problem.time_us(problem.library, stream)
            spent, plan = fastest(timed, known)
            table[kind, columns, depth, high, count] = plan
            rate = problem.weights[0].nbytes / spent / 1e6
            print(
                f"{kind:8} N {columns:5} K {depth:5} rows {high:3} SMs {count:3}: {spent:6.2f} us "
                f"({rate:.2f} TB/s), torch.mm {library:6.2f} us, {plan}",
                flush=True,
            )
        write(args.out, table)
    print(f"done in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
