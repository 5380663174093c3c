"""Train every variant side by side against the clock, have all of them speak, gather the results.

`python -m ablations.run INPUT OUT`, from the folder above. Speech is rendered on the processors
while the codecs train; the language models follow once all speech is there and the encoders are
frozen. Runs of a kind make the same number of updates on the same data (see pace.py). OUT gets the
codes that were spoken, the codecs' decoders, the losses, the logs.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from ablations.variants import VARIANTS

HERE = Path(__file__).parents[1]
CODECS = {f"books{books}": books for books in (6, 4, 8)}
CODEC_OF = {books: name for name, books in CODECS.items()}
PLACES = {"base": 3, "characters": 3, "depth": 0, "books4": 1, "books8": 2}
"""GPU of each language model; the codecs are on 0, 1, 2."""


@dataclass(frozen=True)
class Plan:
    """Seconds from the start, and sizes. rows, frames: of the codec's batch; budget: frames in one
    of the language model's."""

    device: str
    gpus: int
    workers: int
    render_s: float = 90
    codecs_s: float = 235
    models_s: float = 450
    end_s: float = 505
    rows: int = 32
    frames: int = 25
    budget: int = 30_000
    hours: float = 50
    codec_warm_up: int = 400
    model_warm_up: int = 300
    report: int = 50


def plan(args: argparse.Namespace) -> Plan:
    gpus, cores = torch.cuda.device_count(), len(os.sched_getaffinity(0))
    if args.toy:
        device = "cuda:0" if gpus else "cpu"
        return Plan(
            *(device, gpus, 2, 20, 90, 300, 900),
            **{"rows": 1, "frames": 10, "budget": 300, "hours": 0.1},
            **{"codec_warm_up": 1, "model_warm_up": 1, "report": 1},
        )
    workers = max(2, cores - 2 - len(CODECS) - len(VARIANTS))
    if gpus >= 4:
        return Plan("cuda:0", gpus, workers)
    sizes = {"rows": 16, "budget": 12_000 * gpus, "model_warm_up": 200}
    return Plan("cuda:0", gpus, workers, codecs_s=245, models_s=440, **sizes)


class Jobs:
    """Processes of this run, their logs and when they ended."""

    def __init__(self, plan: Plan, work: Path) -> None:
        self.plan, self.work, self.start = plan, work, time.time()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.ended: dict[str, dict[str, float]] = {}

    def begin(self, name: str, command: list[object], gpu: int = -1) -> None:
        threads = 4 if self.plan.device != "cpu" and gpu >= 0 else 1
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
        if gpu >= 0 and self.plan.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu % self.plan.gpus)
        with (self.work / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *map(str, command)],
                cwd=HERE,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> None:
        """Until all have ended, or the time is over: then what is left is ended."""
        while self.running:
            for name, process in list(self.running.items()):
                if time.time() > self.start + self.plan.end_s:
                    process.kill()
                    process.wait()
                if process.poll() is not None:
                    now = round(time.time() - self.start, 1)
                    self.ended[name] = {"seconds": now, "exit": process.returncode}
                    print(f"{now:.0f} s: {name} ended with {process.returncode}", flush=True)
                    del self.running[name]
            time.sleep(0.2)


def begin_all(jobs: Jobs, source: Path, work: Path) -> None:
    p, data, spoken = jobs.plan, work / "data", work / "spoken"
    texts, said = source / "texts.tsv.gz", source / "spoken.tsv.gz"
    render = ["render.py", texts, data, "--workers", p.workers, "--seconds", p.render_s]
    jobs.begin("render", render)
    jobs.begin("render-spoken", ["render.py", said, spoken, "--workers", 1, "--steady"])
    for place, (name, books) in enumerate(CODECS.items()):
        sizes = ["--codebooks", books, "--rows", p.rows, "--frames", p.frames, "--hours", p.hours]
        pace = ["--seconds", 100, "--freeze", 45, "--warm-up", p.codec_warm_up]
        command = ["train_codec.py", data, work / "codecs" / name, *sizes, *pace]
        command += together(jobs, "codecs", name, len(CODECS), p.codecs_s)
        jobs.begin(f"codec-{name}", command, place)
    for name, variant in VARIANTS.items():
        out = work / "models" / name
        out.mkdir(parents=True)
        encoder = work / "codecs" / CODEC_OF[variant.codebooks] / "encoder.pt"
        (out / "encoder.pt").symlink_to(encoder)
        given = [data, out, "--finished", "--intake", 1_000_000, "--budget", p.budget]
        given += ["--warm-up", p.model_warm_up]
        given += together(jobs, "models", name, len(VARIANTS), p.models_s)
        command = ["-m", "ablations.variants", name, source, spoken, "--", *given]
        jobs.begin(f"model-{name}", command, PLACES[name])


def together(jobs: Jobs, kind: str, name: str, runs: int, until_s: float) -> list[object]:
    device = ["--device", jobs.plan.device, "--report", jobs.plan.report]
    pace = ["--together", jobs.work / f"pace-{kind}", "--runs", runs, "--name", name]
    return [*device, *pace, "--until", jobs.start + until_s]


def gather(jobs: Jobs, work: Path, out: Path) -> None:
    spoken: dict[str, np.ndarray] = {}
    logs: dict[str, object] = {}
    for name in VARIANTS:
        file, log = work / "models" / name / "spoken.npz", work / "models" / name / "lm_log.json"
        if file.exists():
            with np.load(file) as held:
                spoken |= {f"{name}.{key}": held[key] for key in held.files}
        if log.exists():
            logs[name] = json.loads(log.read_text())
    for name in CODECS:
        decoder, log = (work / "codecs" / name / f for f in ("decoder.pt", "codec_log.json"))
        if decoder.exists():
            shutil.copy(decoder, out / f"decoder-{name}.pt")
        if log.exists():
            logs[f"codec-{name}"] = json.loads(log.read_text())
    np.savez_compressed(out / "spoken.npz", **spoken)
    frames = 0
    for path in (work / "data").glob("w*.npz"):
        with np.load(path) as shard:
            frames += int(shard["frames"].sum())
    machine = {"torch": torch.__version__, "python": platform.python_version()}
    machine |= {"cores": os.cpu_count(), "gpus": jobs.plan.gpus}
    if jobs.plan.gpus:
        machine["gpu"] = torch.cuda.get_device_name()
    told = {"machine": machine, "plan": asdict(jobs.plan), "hours": frames / 72_000}
    told |= {"ended": jobs.ended, "seconds": round(time.time() - jobs.start, 1), "losses": logs}
    (out / "runs.json").write_text(json.dumps(told))
    with (out / "console.txt").open("w") as console:
        for path in sorted(work.glob("*.log")):
            console.write(f"== {path.stem}\n{path.read_text(errors='replace')}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", type=Path, help="folder of sentences.py")
    parser.add_argument("out", type=Path)
    parser.add_argument("--work", type=Path, default=Path("/tmp/voice-ablations"))
    parser.add_argument("--toy", action="store_true", help="a few updates, to try the whole path")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    jobs = Jobs(plan(args), args.work)
    print(asdict(jobs.plan), flush=True)
    begin_all(jobs, args.input.resolve(), args.work)
    jobs.wait()
    gather(jobs, args.work, args.out)


if __name__ == "__main__":
    main()
