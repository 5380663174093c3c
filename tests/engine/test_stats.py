import numpy as np
import pytest

from tests.engine.harness import settings_of, tiny
from voxserve.engine.executables import shape_of
from voxserve.engine.lanes import LaneDone
from voxserve.engine.pages import Pages
from voxserve.engine.stats import Counters
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.estimates import Estimates
from voxserve.scheduler.launches import Lane, Launch, Stage


def launch(number: int, lane: Lane, stage: Stage, reason: str = "") -> Launch:
    rows = np.zeros(1, np.int32)
    return Launch(number, lane, stage, 1, 0, rows, rows, reason=reason)


def test_a_heartbeat_tells_ages_shares_and_counts_since_the_last_one() -> None:
    policy = settings_of({}).policy.policy()
    scheduler = Scheduler(shape_of(tiny()[0].spec, policy, 4, (8,)), policy, Estimates())
    pages = {"kv": Pages(8)}
    pages["kv"].take(3)
    counters = Counters(slots=4, now=10.0)
    step = launch(0, Lane.LM, Stage.DECODE)
    chunk = launch(1, Lane.URGENT, Stage.CODEC, "first")
    counters.started(step, 10.2)
    counters.started(chunk, 10.5)
    counters.done(LaneDone(chunk, {}, 10.5, 10.75))
    counters.turn(0.003)
    counters.turn(0.001)
    stats = counters.take(scheduler, pages, now=11.0)
    assert stats.step_age_s == pytest.approx(0.8)
    assert stats.lane_busy == {"lm": 0.0, "background": 0.0, "urgent": pytest.approx(0.25)}
    assert stats.dispatches == {"urgent/first": 1}
    assert stats.codec_rows == {"urgent/1": 1}
    assert (stats.loop_s, stats.pages) == (0.003, {"kv": (5, 8)})
    assert (stats.slots_free, stats.slots_total, stats.waiting) == (4, 4, 0)
    counters.done(LaneDone(step, {}, 10.2, 11.5))
    stats = counters.take(scheduler, pages, now=12.0)
    assert (stats.step_age_s, stats.loop_s) == (0.0, 0.0)
    assert stats.lane_busy == {"lm": 1.0, "background": 0.0, "urgent": 0.0}
