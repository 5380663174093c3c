"""When which text is sent: the whole load of a window, decided by rate and seed alone."""

from itertools import islice

import numpy as np

from voxserve.bench.records import Order
from voxserve.bench.targets import Target
from voxserve.bench.workloads import Workload

_TIMES, _TEXTS, _LEAVERS = 0, 1, 2
_SEEDS_A_RUN = 1_000_000


def poisson(rate: float, window_s: float, seed: int) -> list[float]:
    """Arrival times in [0, window_s) of a Poisson process of `rate` a second."""
    rng = np.random.default_rng([seed, _TIMES])
    times: list[float] = []
    now_s = 0.0
    while True:
        # In blocks, so that the times do not depend on how long the window is.
        for gap in rng.standard_exponential(256).tolist():
            now_s += gap / rate
            if now_s >= window_s:
                return times
            times.append(now_s)


def orders(
    workload: Workload, target: Target, times: list[float], seed: int, leave: float = 0.0
) -> list[Order]:
    """One order for each time, with texts in the seed's own order.

    leave: the share of those whose client goes away at a moment of its own, before its speech would
    have been played out.
    """
    texts = workload.draw(np.random.default_rng([seed, _TEXTS]))
    dice = np.random.default_rng([seed, _LEAVERS]).random((len(times), 2)).tolist()
    return [
        Order(
            index=index,
            due_s=due_s,
            id=row.id,
            text=row.text,
            body=target.body(row.text, seed * _SEEDS_A_RUN + index),
            frames=target.frames(row.text),
            leave_s=moment * target.planned_s(row.text) if chance < leave else None,
        )
        for index, (due_s, row, (chance, moment)) in enumerate(
            zip(times, islice(texts, len(times)), dice, strict=True)
        )
    ]
