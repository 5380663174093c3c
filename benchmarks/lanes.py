"""Lanes side by side on one GPU: what sharing costs the LM, the codec and an urgent chunk.

For each split of the SMs it captures one decode step, one background batch and one urgent chunk of
a model with random weights, runs LM and codec back to back from this thread and an urgent chunk at
a fixed interval, and prints steps and chunks a second, and the urgent chunk's latency from launch
to seen done. Two baselines: plain streams (no partition) and sharing in time (steps and batches
take turns on the whole GPU).

    python benchmarks/lanes.py --model Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice --splits 16,24,32,48

`frames` is the audio in a request, which turns steps and chunks a second into requests a second.
"""

import argparse
import gc
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from voxserve.bench.drive import IN_FLIGHT, Work, warm_keys
from voxserve.config import Config, load_config
from voxserve.engine.build import Built, build
from voxserve.engine.lanes import Key
from voxserve.engine.start import load
from voxserve.plugin import ModelSpec, SpeechModel
from voxserve.scheduler.launches import Lane, Stage


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table. urgent_ms: [p50, p99]; idle_ms: the same with both lanes empty."""

    sharing: str
    sms: dict[str, int]
    steps_s: float
    chunks_s: float
    urgent_ms: tuple[float, float]
    idle_ms: tuple[float, float] = (np.nan, np.nan)

    def requests_s(self, rows: int, frames: int, chunk: int) -> tuple[float, float]:
        """What the LM and the codec could serve, each by itself."""
        return self.steps_s * rows / frames, self.chunks_s * chunk / frames


def opened(config: Config, spec: ModelSpec, model: SpeechModel, keys: Sequence[Key]) -> Built:
    """The device side with `keys` alone captured."""
    built = build(config, spec, model)
    for key in warm_keys(built, keys):
        built.backend.warm(key, built.padding.blank(key, spec, built.sizes))
    return built


def breathe(built: Built) -> None:
    """Let the threads of a CPU's lanes run, which a spinning one would starve."""
    if not built.backend.polls:
        time.sleep(0.0005)


def beside(built: Built, works: Sequence[Work], urgent: Work, every_s: float, run_s: float) -> Line:
    """Keep `works` queued on their lanes, and start `urgent` every `every_s`, for `run_s`."""
    lanes, backend = {work.lane: work for work in works}, built.backend
    flying = dict.fromkeys(Lane, 0)
    counts = dict.fromkeys(Lane, 0)
    waits: list[float] = []

    def start(work: Work) -> None:
        launch, inputs = work.next()
        flying[work.lane] += 1
        backend.lanes[work.lane].launch(launch, backend.executable(launch), inputs)

    begin = time.monotonic()
    next_urgent, sent = begin, 0.0
    while True:
        now = time.monotonic()
        if now - begin > run_s:
            break
        if not flying[Lane.URGENT] and now >= next_urgent:
            sent, next_urgent = now, max(next_urgent + every_s, now)
            start(urgent)
        for lane, work in lanes.items():
            while flying[lane] < IN_FLIGHT[lane]:
                start(work)
        breathe(built)
        for lane in Lane:
            done = backend.lanes[lane].poll()
            if done is None:
                continue
            flying[lane] -= 1
            if lane is Lane.URGENT:
                waits.append(time.monotonic() - sent)
            elif done.launch.stage is not Stage.PREFILL:
                counts[lane] += done.launch.rows if lane is Lane.BACKGROUND else 1
    while any(flying.values()):
        for lane in Lane:
            flying[lane] -= backend.lanes[lane].poll() is not None
    p50, p99 = (1000 * np.percentile(waits[3:], [50, 99])).tolist()
    return Line("", {}, counts[Lane.LM] / run_s, counts[Lane.BACKGROUND] / run_s, (p50, p99))


def in_turn(built: Built, lm: Work, codec: Work, steps: int, run_s: float) -> tuple[float, float]:
    """`steps` decode steps, then one codec batch, on one queue. Returns both rates a second."""
    lane, backend = built.backend.lanes[Lane.LM], built.backend
    begin, flying, turn, counts = time.monotonic(), 0, 0, [0, 0]
    while time.monotonic() - begin < run_s:
        while flying < IN_FLIGHT[Lane.LM]:
            work = codec if turn % (steps + 1) == steps else lm
            launch, inputs = work.next()
            turn += launch.stage is not Stage.PREFILL
            lane.launch(launch, backend.executable(launch), inputs)
            flying += 1
        breathe(built)
        done = lane.poll()
        if done is not None:
            flying -= 1
            counts[0] += done.launch.stage is Stage.DECODE
            counts[1] += done.launch.rows * (done.launch.stage is Stage.CODEC)
    while flying:
        flying -= lane.poll() is not None
    return counts[0] / run_s, counts[1] / run_s


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice")
    parser.add_argument("--load-format", default="dummy")
    parser.add_argument("--splits", default="16,24,32", help="SMs of the codec, by commas")
    parser.add_argument("--rows", type=int, default=128, help="rows of a decode step")
    parser.add_argument("--chunks", type=int, default=16, help="rows of a background batch")
    parser.add_argument("--frames", type=int, default=98, help="frames of a request")
    parser.add_argument("--every", type=float, default=0.012, help="seconds between urgent chunks")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", help="write the lines here")
    return parser.parse_args()


def measure(args: argparse.Namespace) -> tuple[list[Line], int]:
    """Every line of the table, and the frames of a chunk."""
    settings: dict[str, dict[str, object]] = {"engine": {"slots": args.rows, "context": 512}}
    for item in args.set:
        name, _, value = item.partition("=")
        section, _, key = name.partition(".")
        settings.setdefault(section, {})[key] = value
    base = {"model": args.model, "load_format": args.load_format, **settings}
    host, model = load(load_config(overrides=base), lambda *_: None)
    chunk = host.spec.frame_buckets[-1]
    decode = Key(Stage.DECODE, args.rows, 0, "lm")
    batch = Key(Stage.CODEC, args.chunks, chunk, "codec")
    batch_whole = Key(Stage.CODEC, args.chunks, chunk, "whole")
    first = Key(Stage.CODEC, 1, chunk, "whole")
    lines: list[Line] = []
    for split in (0, *map(int, args.splits.split(","))):
        config = load_config(overrides=base | {"engine": settings["engine"] | {"codec_sms": split}})
        keys = [decode, batch, first] if split else [decode, batch, first, batch_whole]
        built = opened(config, host.spec, model, keys)
        sms = built.sms
        lm, urgent = Work(built, Lane.LM, decode), Work(built, Lane.URGENT, first)
        codec = Work(built, Lane.BACKGROUND, batch)
        idle = beside(built, [], urgent, args.every, args.seconds).urgent_ms
        both = beside(built, [lm, codec], urgent, args.every, args.seconds)
        name = f"{sms.get('lm')}/{sms.get('codec')}" if split else "plain streams"
        lines.append(replace(both, sharing=name, sms=sms, idle_ms=idle))
        if not split:
            alone = beside(built, [lm], urgent, args.every, args.seconds)
            lines.append(replace(alone, sharing="LM alone, all SMs", sms=sms, idle_ms=idle))
            for steps in (1, 2):
                shared = Work(built, Lane.LM, batch_whole)
                rates = in_turn(built, Work(built, Lane.LM, decode), shared, steps, args.seconds)
                lines.append(Line(f"in turn, {steps} : 1", sms, *rates, (np.nan, np.nan)))
        built.backend.close()
        del built, lm, codec, urgent
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return lines, chunk


def main() -> None:
    args = arguments()
    lines, chunk = measure(args)
    print("sharing               steps/s  req/s  chunks/s  req/s  urgent p50 / p99, when idle, ms")
    for line in lines:
        lm_rate, codec_rate = line.requests_s(args.rows, args.frames, chunk)
        print(
            f"{line.sharing:20} {line.steps_s:8.1f} {lm_rate:6.0f} {line.chunks_s:9.0f}"
            f" {codec_rate:6.0f} {line.urgent_ms[0]:9.2f} / {line.urgent_ms[1]:.2f}"
            f" {line.idle_ms[0]:9.2f} / {line.idle_ms[1]:.2f}"
        )
    if args.json:
        with open(args.json, "w") as file:
            json.dump(
                {"args": vars(args), "lines": [asdict(line) for line in lines]}, file, indent=1
            )


if __name__ == "__main__":
    main()
