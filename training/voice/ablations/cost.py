"""What one step of each variant costs a CPU thread: `python -m ablations.cost`."""

import json
import statistics
import time
from collections.abc import Callable

import torch
from lm import PAD, WIDTH, VoiceLM, sample
from torch import Tensor

from ablations.depth import DepthLM
from ablations.variants import BASE, VARIANTS

HELD = 60
"""Frames before the step that is timed."""
ROUNDS, STEPS = 15, 8


def stepper(model: VoiceLM) -> Callable[[], object]:
    """One step of a single stream, sampling included."""
    told = torch.randn(1, 1, WIDTH)
    last = torch.full((1, 1, model.codebooks), PAD)
    held: list[list[Tensor]] = [[] for _ in model.layers]
    model.frame(last.expand(1, HELD, -1), told.expand(1, HELD, -1), held)

    def step() -> object:
        caches = [list(cache) for cache in held]
        if isinstance(model, DepthLM):
            return model.one_frame(last, told, caches, 0.7)
        return sample(model.step(last, told, caches), 0.7)

    return step


@torch.no_grad()
def costs() -> dict[str, dict[str, float]]:
    """Of each variant: parameters in millions, milliseconds of a step, and their ratio to BASE's.

    The variants take turns, so that what else the machine does falls on all of them alike.
    """
    torch.set_num_threads(1)
    models = {name: variant.make().eval() for name, variant in VARIANTS.items()}
    steps = {name: stepper(model) for name, model in models.items()}
    taken: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS + 1):
        for name, step in steps.items():
            began = time.thread_time()
            for _ in range(STEPS):
                step()
            taken[name].append((time.thread_time() - began) / STEPS * 1e3)
    median = {name: statistics.median(times[1:]) for name, times in taken.items()}
    return {
        name: {
            "parameters_m": sum(p.numel() for p in model.parameters()) / 1e6,
            "step_ms": median[name],
            "ratio": median[name] / median[BASE],
        }
        for name, model in models.items()
    }


def main() -> None:
    for name, values in costs().items():
        print(name, json.dumps({key: round(value, 2) for key, value in values.items()}))


if __name__ == "__main__":
    main()
