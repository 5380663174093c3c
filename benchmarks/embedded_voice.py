"""What the embedded voice costs a CPU: thread-CPU time of its stages, and what follows from it.

`python -m benchmarks.embedded_voice` prints one JSON line a batch size. CPU time hardly depends on
what else the machine does; wall time is given beside it. first_audio_ms is the work before the
first sound of a sentence (prefill, the steps of the first chunk, its decoding); x_realtime is audio
of all rows together for one core's time, so also how many streams a busy core sustains.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

import torch
from torch import Tensor

from voxserve.checkpoints import find
from voxserve.models.mini.config import PAGE_FRAMES, POOL, MiniConfig
from voxserve.models.mini.weights import load

PHONEMES = 60
STEP = 60
SLOTS = 16


def state_of(config: MiniConfig, pages: int) -> dict[str, Tensor]:
    return {
        tensor.name: torch.zeros(
            ((pages if tensor.scope == "page" else SLOTS) + 1, *tensor.shape),
            dtype=getattr(torch, "float32" if tensor.dtype == "model" else tensor.dtype),
        )
        for tensor in config.state()
    }


def chunk(slots: Tensor, frames: int) -> dict[str, Tensor]:
    return {
        "slots": slots,
        "codes": torch.randint(0, 625, (len(slots), frames, 6)),
        "lengths": torch.full_like(slots, frames),
        "fresh": torch.zeros_like(slots, dtype=torch.bool),
    }


def timed(run: Callable[[], object], times: int) -> tuple[float, float]:
    """(thread-CPU, wall) milliseconds of one call."""
    run()
    cpu, wall = time.thread_time(), time.perf_counter()
    for _ in range(times):
        run()
    return (
        (time.thread_time() - cpu) / times * 1e3,
        (time.perf_counter() - wall) / times * 1e3,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--times", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint = find("mini", dummy=False)[1]
    model = load(checkpoint, "cpu", "float32")
    config, spec = model.config, model.config.spec()
    for rows in args.rows:
        pages = -(-config.max_steps(PHONEMES) // PAGE_FRAMES)
        state, slots = state_of(config, rows * pages), torch.arange(rows)
        ids = torch.randint(43, 148, (rows, PHONEMES, 1))
        prompt = {
            "slots": slots,
            "lengths": torch.full((rows,), PHONEMES),
            "rows": ids,
            "sampling": torch.tensor([[0.7, -1, 1, 1, 0]] * rows),
            "seeds": slots,
            f"pages_{POOL}": torch.arange(rows * pages).view(rows, pages),
        }
        step = {"slots": slots, "steps": torch.full((rows,), STEP)}
        first, last = spec.ramps[0][0], spec.ramps[0][-1]

        measured = {
            "prefill": timed(partial(model.prefill, prompt, state), args.times // 3),
            "decode": timed(partial(model.decode, step, state), args.times),
        }
        for frames in (first, last):
            run = partial(model.codec, chunk(slots, frames), state)
            measured[f"codec_{frames}"] = timed(run, args.times)
        cpu = {name: values[0] for name, values in measured.items()}
        steps = first + config.lag - 1
        chunk_s = last * spec.frame_s
        core_share = (cpu["decode"] * last + cpu[f"codec_{last}"]) / 1e3 / chunk_s
        print(
            json.dumps(
                {
                    "rows": rows,
                    "first_audio_ms": round(
                        cpu["prefill"] + steps * cpu["decode"] + cpu[f"codec_{first}"], 1
                    ),
                    "x_realtime": round(rows / core_share, 1),
                    "cpu_ms": {name: round(values[0], 1) for name, values in measured.items()},
                    "wall_ms": {name: round(values[1], 1) for name, values in measured.items()},
                    "torch": version("torch"),
                }
            )
        )


if __name__ == "__main__":
    main()
