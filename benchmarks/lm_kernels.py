"""The LM steps of Qwen3-TTS on fused kernels: time, where it goes, and how exact they are.

    python benchmarks/lm_kernels.py [--rows 1 16 64 128 256] [--codec-sms 32] [--json FILE]
                                    [--skip-check] [--small] [--fixed]

Random weights of the 1.7B model, every row at the same context, captured graphs, on all SMs and on
what the codec leaves. Prints talker and depth loop beside their floors (bytes of weights and keys
and values at 4.6 TB/s), the share of each kernel, the error of logits against a float32 copy with
forced codes (beside that of plain bf16), greedy agreement, and whether a replay equals eager.
`--fixed` times the tiles of deterministic mode, and prefills of 1 and 8 rows with them.
`--small` checks a small model instead and times nothing: it runs without a GPU in Triton's
interpreter.
"""

import argparse
import copy
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from voxserve.engine.green_contexts import partition
from voxserve.kernels import tiles
from voxserve.kernels.stream import enter, new_stream
from voxserve.models.qwen3_tts import fused_lm
from voxserve.models.qwen3_tts.config import Qwen3Config
from voxserve.models.qwen3_tts.fused_lm import FusedTalker
from voxserve.models.qwen3_tts.limits import PAGE_UNITS, state
from voxserve.models.qwen3_tts.published import published
from voxserve.models.qwen3_tts.stages import Qwen3Model
from voxserve.models.qwen3_tts.weights import load_language_model
from voxserve.nn.fused_stack import arrivals
from voxserve.nn.rows import put_rows
from voxserve.plugin import Checkpoint

MODEL = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
READ_BYTES_S = 4.6e12
PROMPT = 16
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
State = dict[str, Tensor]


def model(*, small: bool) -> tuple[Qwen3Config, Any]:
    """Random weights; large enough in the embeddings that codes matter."""
    checkpoint = Checkpoint(MODEL, None, published()[MODEL], dummy=True)
    config = Qwen3Config.read(checkpoint)
    if small:
        body = replace(config.talker.body, hidden=64, inner=128, layers=1, heads=4, kv_heads=2)
        depth = replace(config.talker.depth, hidden=32, inner=64, layers=1, heads=4, kv_heads=2)
        talker = replace(
            config.talker,
            body=replace(body, head=32),
            depth=replace(depth, head=32),
            codebooks=3,
            text_vocabulary=2048,
            text_hidden=64,
        )
        config = replace(config, talker=talker)
    kind = torch.bfloat16 if DEVICE == "cuda" else torch.float32
    return config, load_language_model(checkpoint, config, DEVICE, kind)


def fresh_state(config: Qwen3Config, slots: int, pages: int, dtype: torch.dtype) -> State:
    """State of `slots` rows, each with `pages` pages of its own, sampling as published."""
    counts = {"row": slots + 1, "page": slots * pages + 1, "clip": 1}
    made = {
        part.name: torch.zeros(
            counts[part.scope],
            *part.shape,
            device=DEVICE,
            dtype=dtype if part.dtype == "model" else getattr(torch, part.dtype),
        )
        for part in state(config)
        if part.name.startswith("lm.")
    }
    table = torch.arange(slots * pages, device=DEVICE).view(slots, pages)
    made["lm.pages"].fill_(slots * pages)
    made["lm.pages"][:slots, :pages] = table
    values = [0.9, 50.0, 1.0, 1.05, 2.0, 0.9, 50.0, 1.0, 0.0]
    made["lm.sampling"][:] = torch.tensor(values, device=DEVICE)
    made["lm.seed"][:] = torch.arange(slots + 1, device=DEVICE)
    return made


class Forced:
    """Puts codes into both kinds of step and keeps the logits that they computed.

    codes: [steps, B, K] int64.
    """

    def __init__(self, codes: Tensor) -> None:
        self.codes = codes
        self.logits: list[Tensor] = []

    def plain(self, config: Qwen3Config, language: Any) -> Qwen3Model:
        forced = self

        class Model(Qwen3Model):
            def _speak(self, hidden: Tensor, slots: Tensor, steps: Tensor, state: Any) -> Tensor:
                codes = forced.codes[int(steps[0]), : len(slots)]

                def pick(logits: Tensor, book: int) -> Tensor:
                    forced.logits.append(logits.clone())
                    return codes[:, book]

                self.talker.speak(hidden, pick)
                put_rows(state["lm.codes"], slots, codes)
                return codes

        return Model(config, language, None)  # type: ignore[arg-type]

    @contextmanager
    def inside(self) -> Iterator[None]:
        """While this holds, the fused step takes the codes as well."""
        real = fused_lm.choose

        def choose(logits: Tensor, draw: Any, book: int, column: int, **given: Any) -> None:
            rows = len(draw.slots)
            self.logits.append(logits[:rows].clone())
            real(logits, draw, book, column, **given)
            code = self.codes[int(draw.steps[0]), :rows, book]
            draw.codes[:, book] = code
            draw.kept[draw.slots, book] = code
            if given.get("table") is not None:
                enter(given["table"][code], given["gain"], rows, None, 0.0, given["out"])

        fused_lm.choose = choose
        try:
            yield
        finally:
            fused_lm.choose = real


def prompts(rows: int, width: int) -> tuple[Tensor, Tensor]:
    """Prompt rows [B, T, 3] and their lengths."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 2000, (rows, width, 3), generator=generator)
    ids[..., 2] = -1
    lengths = torch.randint(width // 2, width + 1, (rows,), generator=generator)
    return ids.to(DEVICE), lengths.to(DEVICE)


def spoken(step: Callable[..., Any], config: Qwen3Config, kind: torch.dtype, steps: int) -> None:
    """A prefill and `steps` decode steps of 8 rows; step(phase, io, state)."""
    rows = 8 if DEVICE == "cuda" else 2
    held = fresh_state(config, rows, 4, kind)
    ids, lengths = prompts(rows, 64 if DEVICE == "cuda" else 16)
    slots = torch.arange(rows, device=DEVICE)
    io = {
        "slots": slots,
        "lengths": lengths,
        "rows": ids,
        "sampling": held["lm.sampling"][:rows].clone(),
        "seeds": held["lm.seed"][:rows].clone(),
        "ignore_eos": held["lm.ignore_eos"][:rows].clone(),
        "clips": slots,
        "pages_kv": held["lm.pages"][:rows].clone(),
    }
    held["lm.prompt"][:rows] = lengths
    step("prefill", io, held)
    for number in range(1, steps + 1):
        inject = ids[:, number, :1].contiguous()
        step("decode", {"slots": slots, "steps": slots * 0 + number, "inject": inject}, held)


def check(config: Qwen3Config, plain: Any, exact: Any, fused: FusedTalker) -> dict[str, Any]:
    """Errors of the logits of a prefill and three steps, with the same codes for all."""
    steps = 3
    forced = Forced(torch.randint(0, 2000, (steps + 1, 8, config.talker.codebooks)).to(DEVICE))
    logits: dict[str, list[Tensor]] = {}
    for name, language in (("float32", exact), ("plain", plain)):
        model = forced.plain(config, language)
        kind = torch.float32 if name == "float32" else next(language.parameters()).dtype
        forced.logits = []
        spoken(lambda phase, io, held, m=model: getattr(m, phase)(io, held), config, kind, steps)
        logits[name] = forced.logits
    embed = forced.plain(config, plain)._embed

    def step(phase: str, io: Any, held: Any) -> None:
        if phase == "prefill":
            x = embed(io["rows"], io["clips"], held)
            fused.prefill(x, io["slots"], io["lengths"], held)
        else:
            fused.decode(io["slots"], io["steps"], io["inject"], held)

    for name in ("fused", "fixed"):
        forced.logits = []
        with forced.inside(), tiles.fixed_tiles(name == "fixed"):
            spoken(step, config, fused.text.dtype, steps)
        logits[name] = forced.logits
    books = config.talker.codebooks
    out: dict[str, Any] = {}
    for name in ("plain", "fused", "fixed"):
        for part in ("prefill first", "prefill depth", "decode first", "decode depth"):
            which = [
                i
                for i in range(len(logits[name]))
                if (i < books) == part.startswith("prefill")
                and (i % books == 0) == ("first" in part)
            ]
            error, agree = 0.0, 0.0
            for i in which:
                got, want = logits[name][i].float(), logits["float32"][i]
                error = max(error, float((got - want).norm() / want.norm()))
                agree += float((got.argmax(1) == want.argmax(1)).float().mean()) / len(which)
            out[f"{name} {part}"] = [round(error, 5), round(agree, 3)]
            print(f"logits {name:6} {part:14} error {error:.5f} greedy agreement {agree:.3f}")
    return out


def captured(run: Callable[[], Any], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    return graph


def timed(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, repeats: int = 30) -> float:
    """Milliseconds of a replay."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        for _ in range(3):
            graph.replay()
        start.record()
        for _ in range(repeats):
            graph.replay()
        end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats


def kernels_of(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> dict[str, float]:
    """Milliseconds of a replay by kernel."""
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile,
        torch.cuda.stream(stream),
    ):
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    total: Counter[str] = Counter()
    for event in profile.events():
        total[event.name[:40]] += event.device_time / 3e3
    return {name: round(spent, 3) for name, spent in total.most_common(14)}


def floors(config: Qwen3Config, rows: int, context: int) -> tuple[float, float]:
    """Milliseconds to read what talker and depth loop have to read."""

    def weights(sizes: Any) -> int:
        heads = (2 * sizes.heads + 2 * sizes.kv_heads) * sizes.head
        return int(sizes.layers * sizes.hidden * (heads + 3 * sizes.inner) * 2)

    body, depth = config.talker.body, config.talker.depth
    kept = rows * context * body.layers * 2 * body.kv_heads * body.head * 2
    talker = (weights(body) + kept) / READ_BYTES_S * 1e3
    return talker, (config.talker.codebooks - 1) * weights(depth) / READ_BYTES_S * 1e3


def measure(
    config: Qwen3Config, fused: FusedTalker, held: State, rows: int, sms: int, stream: Any
) -> dict[str, Any]:
    """One line of the table."""
    slots = torch.arange(rows, device=DEVICE)
    steps, inject = slots * 0 + 100, (slots * 0 + 5)[:, None]
    decode = lambda: fused.decode(slots, steps, inject, held)  # noqa: E731
    entered = new_stream(rows, config.talker.body.hidden, 1, fused.text)
    entered.residual.normal_()
    entered.x.copy_(entered.residual)
    entered.squares.fill_(float(config.talker.body.hidden))
    arrived = arrivals(slots)
    depth = lambda: fused._speak(entered, slots, steps, held, arrived)  # noqa: E731
    with tiles.on_sms(sms), torch.inference_mode():
        whole, part = captured(decode, stream), captured(depth, stream)
    both, below = timed(whole, stream), timed(part, stream)
    talker, loop = floors(config, rows, PROMPT + 100)
    line = {
        "rows": rows,
        "sms": sms,
        "fixed": tiles.fixed(),
        "step_ms": round(both, 3),
        "talker_ms": round(both - below, 3),
        "talker_over_floor": round((both - below) / talker, 2),
        "depth_ms": round(below, 3),
        "depth_over_floor": round(below / loop, 2),
    }
    print(json.dumps(line))
    print("   ", json.dumps(kernels_of(whole, stream)))
    return line


def prefill_ms(
    config: Qwen3Config, fused: FusedTalker, held: State, rows: int, tokens: int, stream: Any
) -> float:
    """Milliseconds of a prefill's graph."""
    slots = torch.arange(rows, device=DEVICE)
    x = torch.randn(rows, tokens, config.talker.body.hidden, device=DEVICE, dtype=fused.text.dtype)
    graph = captured(lambda: fused.prefill(x, slots, slots * 0 + tokens, held), stream)
    return round(timed(graph, stream), 3)


def replay_equals_eager(fused: FusedTalker, held: State, stream: Any) -> bool:
    """The codes of a captured step and of the same step called, from the same state."""
    slots = torch.arange(16, device=DEVICE)
    steps, inject = slots * 0 + 100, (slots * 0 + 5)[:, None]
    before = {name: value.clone() for name, value in held.items() if "kv" not in name}
    eager = fused.decode(slots, steps, inject, held).clone()
    out: list[Tensor] = []
    graph = captured(lambda: out.append(fused.decode(slots, steps, inject, held)), stream)
    for name, value in before.items():
        held[name].copy_(value)
    graph.replay()
    torch.cuda.synchronize()
    return torch.equal(out[-1], eager)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 64, 128, 256])
    parser.add_argument("--codec-sms", type=int, default=32)
    parser.add_argument("--json")
    parser.add_argument("--skip-check", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    report: dict[str, Any] = {"torch": torch.__version__}
    config, language = model(small=args.small)
    if not args.skip_check:
        exact = copy.deepcopy(language).float()
        exact.talker.finish()
    fused = FusedTalker(language.talker, config.talker)
    if not args.skip_check:
        # The plain path runs on the same weights: the fused ones are views of one another.
        report["logits"] = check(config, language, exact, fused)
        del exact
    if args.small:
        return
    report["gpu"] = torch.cuda.get_device_name()
    held = fresh_state(config, max(args.rows), 3, torch.bfloat16)
    held["lm.prompt"].fill_(PROMPT)
    assert PROMPT + 100 < 3 * PAGE_UNITS
    parts = partition(0, args.codec_sms)
    report["replay equals eager"] = replay_equals_eager(fused, held, parts.whole)
    print("replay equals eager:", report["replay equals eager"])
    with tiles.fixed_tiles(args.fixed):
        report["lines"] = [
            measure(config, fused, held, rows, sms, stream)
            for sms, stream in ((parts.sms["whole"], parts.whole), (parts.sms["lm"], parts.lm))
            for rows in args.rows
        ]
        report["prefill_ms"] = {
            f"{rows} x {tokens}": prefill_ms(config, fused, held, rows, tokens, parts.whole)
            for rows in (1, min(8, max(args.rows)))
            for tokens in (32, 64, 128)
        }
    print("prefill_ms", json.dumps(report["prefill_ms"]))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
