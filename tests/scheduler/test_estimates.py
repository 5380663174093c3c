"""Running quantiles, and what stands in for buckets that were never seen."""

import numpy as np

from voxserve.scheduler.estimates import WINDOW, Estimates, Quantile
from voxserve.scheduler.launches import Lane, Launch, Stage


def launch(rows: int, units: int, lane: Lane = Lane.BACKGROUND) -> Launch:
    nobody = np.zeros(0, np.int32)
    return Launch(0, lane, Stage.CODEC, rows, units, nobody, nobody)


def test_a_quantile_is_near_the_top_of_what_was_seen() -> None:
    quantile = Quantile()
    for value in range(11):
        quantile.add(float(value))
    assert quantile.value == 9.0


def test_a_quantile_forgets() -> None:
    quantile = Quantile(100.0)
    for _ in range(WINDOW):
        quantile.add(1.0)
    assert quantile.value == 1.0 and len(quantile) == WINDOW


def test_a_measured_bucket_replaces_its_seed() -> None:
    estimates = Estimates({(Lane.BACKGROUND, Stage.CODEC, 8, 10): 0.5})
    for _ in range(WINDOW):
        estimates.record(launch(8, 10), 0.006)
    assert estimates.seconds(Lane.BACKGROUND, Stage.CODEC, 8, 10) == 0.006


def test_an_unseen_bucket_borrows_from_the_nearest() -> None:
    estimates = Estimates()
    assert estimates.seconds(Lane.BACKGROUND, Stage.CODEC, 1, 10) == 0.0
    estimates.record(launch(16, 10), 0.006)
    estimates.record(launch(4, 10), 0.002)
    estimates.record(launch(4, 10, Lane.URGENT), 0.001)
    assert estimates.seconds(Lane.BACKGROUND, Stage.CODEC, 1, 10) == 0.002
    assert estimates.seconds(Lane.BACKGROUND, Stage.CODEC, 8, 4) == 0.006
    assert estimates.seconds(Lane.BACKGROUND, Stage.CODEC, 32, 10) == 0.006
    assert estimates.seconds(Lane.URGENT, Stage.CODEC, 1, 1) == 0.001
    assert estimates.seconds(Lane.LM, Stage.CODEC, 1, 1) > 0.0
    assert estimates.seconds(Lane.LM, Stage.DECODE, 1, 0) == 0.0
    for _ in range(WINDOW):
        estimates.record(launch(4, 10), 0.003)
    assert estimates.seconds(Lane.BACKGROUND, Stage.CODEC, 1, 10) == 0.003
