"""What the scheduling policy alone is worth: capacity under fixed costs, mechanism by mechanism.

The real scheduler on the simulated lanes of tests/sim.py, open loop, Poisson arrivals, requests of
7.8 s at 12.5 frames a second. A request counts when its first audio comes within 200 ms, its player
waits less than 10 ms in all, and it completes; refused ones are misses. Capacity is the highest
rate at which 90 % (99 %) count there and at every lower rate that was tried.

    python -m benchmarks.simulated_capacity [--seconds 20] [--seeds 1] [--only NAME] [--by-row 0.95]

Prints one JSON line a configuration, the whole system first. Then, for it alone, what happens at
80 % of its capacity, at it, and at two, five and twenty times it.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from tests.sim import STALL_S, Costs, Simulation, Talk
from voxserve.config import PolicyConfig
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.estimates import Estimates
from voxserve.scheduler.launches import Arrival
from voxserve.scheduler.policy import Shape

RATE_HZ = 24_000
FRAME_SAMPLES = 1920
FRAMES = 98
TTFA_S = 0.2
COARSE, FINE = 20, 4
"""Requests per second between tried rates: first up in large steps, then in small ones."""

SHAPE = Shape(
    slots=256,
    pages=(256 * 4,),
    frame_s=FRAME_SAMPLES / RATE_HZ,
    sample_rate_hz=RATE_HZ,
    frame_buckets=(1, 2, 4, 10),
    ramps=((1, 2, 4, 10), (2, 4, 10), (4, 10), (10,)),
    ahead_frames=0,
    prefill_tokens=(32, 64),
    decode_rows=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    prefill_rows=(1, 2, 4, 8),
    codec_rows=(1, 2, 4, 8, 16),
)


@dataclass(frozen=True)
class Variant:
    """One configuration: the settings of the policy that differ, and whether SMs are set aside."""

    name: str
    policy: tuple[tuple[str, Any], ...] = ()
    partition: bool = True


VARIANTS = (
    Variant("whole system"),
    Variant("no partition", partition=False),
    Variant("one launch at a time", (("overlap", False),), partition=False),
    Variant("no background lane", (("background_lane", False),)),
    Variant("no background batching", (("background_batch", 1), ("background_rows", 1))),
    Variant("background batches from 1 chunk", (("background_batch", 1),)),
    Variant("no urgent lane", (("urgent_lane", False),)),
    Variant("prefill-first admission", (("admission", "prefill-first"),)),
    Variant("no refusals", (("refuse", False),)),
    Variant("chunks of 10 from the first", (("ramp", 3),)),
)


@dataclass(frozen=True)
class Result:
    """One run. Shares are of all requests; goodput in requests per second."""

    rate: float
    attained: float
    refused: float
    late: float
    stalled: float
    admitted_attained: float
    goodput: float
    ttfa_ms: tuple[float, float]


@cache
def simulate(variant: Variant, costs: Costs, rate: float, seconds: float, seed: int) -> Result:
    """Offer `rate` requests a second for `seconds` and see what became of them."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(1 / rate, int(rate * seconds)))
    talks = [
        Talk(Arrival(request, float(at), TTFA_S, 10, FRAMES, (2,)), FRAMES)
        for request, at in enumerate(times)
    ]
    scheduler = Scheduler(SHAPE, PolicyConfig(**dict(variant.policy)).policy(), Estimates())
    simulation = Simulation(
        scheduler,
        replace(costs, partition=variant.partition),
        talks,
        samples_per_frame=FRAME_SAMPLES,
        sample_rate_hz=RATE_HZ,
    )
    simulation.run()
    heard = [simulation.heard[request] for request in range(len(talks))]
    ttfa = np.array([np.inf if h.first_s is None else h.first_s for h in heard]) - times
    stalled = np.array([h.stalled_s >= STALL_S for h in heard])
    refused = np.array([h.state == "refused" for h in heard])
    complete = np.array([h.complete for h in heard])
    good = complete & (ttfa <= TTFA_S) & ~stalled
    p50, p99 = np.percentile(ttfa[~refused], [50, 99]) * 1e3
    return Result(
        rate=rate,
        attained=float(good.mean()),
        refused=float(refused.mean()),
        late=float((~refused & (ttfa > TTFA_S)).mean()),
        stalled=float(stalled.mean()),
        admitted_attained=float(good.sum() / max((~refused).sum(), 1)),
        goodput=float(good.sum() / times[-1]),
        ttfa_ms=(round(float(p50), 1), round(float(p99), 1)),
    )


def capacity(variant: Variant, costs: Costs, seconds: float, seeds: int, share: float) -> int:
    """The highest rate tried at which `share` of the requests count, there and below."""

    def holds(rate: int) -> bool:
        runs = [simulate(variant, costs, rate, seconds, seed) for seed in range(seeds)]
        return float(np.mean([run.attained for run in runs])) >= share

    best = 0
    while holds(best + COARSE):
        best += COARSE
    while holds(best + FINE):
        best += FINE
    return best


def report(variant: Variant, costs: Costs, seconds: float, seeds: int) -> Iterator[dict[str, Any]]:
    at_90, at_99 = (capacity(variant, costs, seconds, seeds, share) for share in (0.9, 0.99))
    yield {"variant": variant.name, "capacity_90": at_90, "capacity_99": at_99}
    if variant is not VARIANTS[0]:
        return
    for times in (0.8, 1, 2, 5, 20):
        run = simulate(variant, costs, at_90 * times, seconds, seed=0)
        yield {"variant": variant.name, "times_capacity": times, **rounded(run)}


def rounded(run: Result) -> dict[str, Any]:
    figures = {name: getattr(run, name) for name in Result.__dataclass_fields__}
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", help="one configuration by its name")
    parser.add_argument("--by-row", type=float, default=0.0, help="see tests/sim.py")
    options = parser.parse_args()
    costs = Costs(by_row=options.by_row)
    for variant in VARIANTS:
        if options.only in (None, variant.name):
            for line in report(variant, costs, options.seconds, options.seeds):
                print(json.dumps(line))
                sys.stdout.flush()


if __name__ == "__main__":
    main()
