"""What each executable takes, alone and beside the other lanes' loads."""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from voxserve.bench.drive import Driver, Pace, Work
from voxserve.bench.profile_file import Sharing, Timing
from voxserve.engine.build import lane_of
from voxserve.engine.lanes import Key
from voxserve.scheduler.launches import Lane, Stage

Report = Callable[[str, int, int], None]
BESIDE: dict[Lane, tuple[Lane, ...]] = {
    Lane.LM: (Lane.BACKGROUND,),
    Lane.BACKGROUND: (Lane.LM,),
    Lane.URGENT: (Lane.LM,),
}
SETS = [
    (lane, others)
    for lane in Lane
    for size in (1, 2)
    for others in combinations([other for other in Lane if other is not lane], size)
]
"""Each lane, and every set of others that may be busy beside it."""


def measurements(keys: Sequence[Key]) -> int:
    """How many runs of the driver `timings_of` takes."""
    return sum(1 + len(BESIDE[lane_of(key)]) for key in keys)


def loads_of(keys: Sequence[Key]) -> dict[Lane, Key]:
    """The load of each lane, of these executables: what it mostly runs on a busy server."""
    steps = [key for key in keys if key.stage is Stage.DECODE]
    loads = {Lane.LM: steps[max(0, len(steps) - 2)]}
    for lane in (Lane.BACKGROUND, Lane.URGENT):
        batches = [key for key in keys if key.stage is Stage.CODEC and lane_of(key) is lane]
        if batches:
            loads[lane] = batches[-1] if lane is Lane.BACKGROUND else batches[0]
    return loads


def gap_between(driver: Driver, loads: dict[Lane, Key], pace: Pace) -> float:
    """What lies between two launches of which the second is queued once the first is done."""
    work = Work(driver.machine, Lane.LM, loads[Lane.LM])
    return float(np.median(driver.run(work, budget_s=pace.next_s(), in_flight=1).gaps))


def timings_of(
    driver: Driver, keys: Sequence[Key], loads: dict[Lane, Key], pace: Pace, report: Report
) -> list[Timing]:
    machine, timings = driver.machine, []
    for number, key in enumerate(keys):
        report("timing executables", number, len(keys))
        lane = lane_of(key)
        alone = driver.run(Work(machine, lane, key), budget_s=pace.next_s()).seconds
        beside = {}
        for other in BESIDE[lane]:
            load_work = Work(machine, other, loads[other])
            runs = driver.run(Work(machine, lane, key), [load_work], budget_s=pace.next_s())
            beside[other.name] = runs.median_s
        p50, p90 = np.percentile(alone, [50, 90]).tolist()
        timings.append(
            Timing(lane.name, key.stage.name, key.rows, key.units, p50, p90, beside, len(alone))
        )
    report("timing executables", len(keys), len(keys))
    return timings


def sharing_of(driver: Driver, loads: dict[Lane, Key], pace: Pace, report: Report) -> list[Sharing]:
    """Each lane's load beside every set of the others."""
    found = []
    for number, (lane, others) in enumerate(SETS):
        report("timing lanes side by side", number, len(SETS))
        works = [Work(driver.machine, other, loads[other]) for other in others]
        alone = driver.run(Work(driver.machine, lane, loads[lane]), budget_s=pace.next_s())
        beside = driver.run(Work(driver.machine, lane, loads[lane]), works, budget_s=pace.next_s())
        rate = min(1.0, alone.median_s / beside.median_s)
        found.append(Sharing(lane.name, [other.name for other in others], rate))
    report("timing lanes side by side", len(SETS), len(SETS))
    return found
