"""Who is prefilled when and with whom, who waits, and who is turned away."""

from typing import Any

import numpy as np
import pytest

from tests.scheduler.world import SEED, arrival, run, scheduler
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.launches import Done, Lane, Launch, Stage

STEP_S = 0.01


def prefills(core: Scheduler, now: float) -> list[Launch]:
    return [launch for launch in core.plan(now).launches if launch.stage is Stage.PREFILL]


def playing(core: Scheduler, request: int, now: float) -> None:
    """Bring one request so far that it has sent one frame and decodes on; nothing in flight."""
    core.submit(arrival(request, now, max_steps=1000), now)
    while True:
        launches = core.plan(now).launches
        for launch in launches:
            run(core, launch, now, max_steps=1000)
        if any(launch.stage is Stage.CODEC for launch in launches):
            return


def test_waiting_prefills_share_a_batch_of_one_bucket() -> None:
    core = scheduler(slots=16, pages=(64,), refuse=False, prefill_defer_s=0)
    for request, prompt_rows in enumerate([40, 10, 64, 65, 33]):
        core.submit(arrival(request, prompt_rows=prompt_rows), 0.0)
    first, second = prefills(core, 0.0)
    assert (first.requests.tolist(), first.rows, first.units) == ([0, 1, 2, 4], 4, 64)
    assert (second.requests.tolist(), second.rows, second.units) == ([3], 1, 128)
    assert core.prefills == 5


def test_the_nearest_deadline_is_prefilled_first_and_those_without_last() -> None:
    core = scheduler(prefill_rows=1, lm_in_flight=4, refuse=False)
    core.submit(arrival(1, ttfa_s=None), 0.0)
    core.submit(arrival(2, ttfa_s=1.0), 0.0)
    core.submit(arrival(3, ttfa_s=0.5), 0.0)
    core.submit(arrival(4, ttfa_s=0.5), 0.0)
    assert [launch.requests.tolist() for launch in prefills(core, 0.0)] == [[3], [4], [2], [1]]


def test_prefill_first_goes_in_order_of_arrival() -> None:
    core = scheduler(prefill_rows=1, lm_in_flight=4, refuse=False, admission="prefill-first")
    for request, ttfa_s in enumerate([None, 1.0, 0.5]):
        core.submit(arrival(request, ttfa_s=ttfa_s), 0.0)
    assert [launch.requests.tolist() for launch in prefills(core, 0.0)] == [[0], [1], [2]]


def test_nobody_overtakes_a_request_that_lacks_pages() -> None:
    core = scheduler(refuse=False)
    core.submit(arrival(1, pages=(10,)), 0.0)
    core.submit(arrival(2, pages=(10,)), 0.0)
    core.submit(arrival(3, pages=(1,)), 0.0)
    (launch,) = prefills(core, 0.0)
    assert launch.requests.tolist() == [1]
    assert core.waiting == 2 and core.pages_free == (6,)


def test_a_prefill_waits_for_a_stream_in_need_but_not_for_long() -> None:
    core = scheduler(lm_in_flight=1, refuse=False, ramp=0)
    playing(core, 1, 0.0)
    # One frame of 80 ms was sent at 0. The next two take two steps and the codec, 22 ms; from
    # 54 ms on the slack is less than the 4 ms of a prefill.
    core.submit(arrival(2, 0.055), 0.055)
    plan = core.plan(0.055)
    assert [launch.stage for launch in plan.launches] == [Stage.DECODE]
    now = 0.055
    while not (stuck(plan.launches, core, now) or now > 1.0):
        now += 0.001
        plan = core.plan(now)
    assert now == pytest.approx(0.155, abs=0.0011)
    (prefill,) = (launch for launch in plan.launches if launch.stage is Stage.PREFILL)
    assert prefill.held_s == pytest.approx(0.1, abs=0.0011)


def stuck(launches: list[Launch], core: Scheduler, now: float) -> bool:
    """Bring decode steps back without any progress; True once there is a prefill."""
    for launch in launches:
        nothing = np.zeros(len(launch.requests), np.int8)
        core.finish(Done(launch, STEP_S, nothing.astype(np.int32) + 1, nothing), now)
    return any(launch.stage is Stage.PREFILL for launch in launches)


def test_a_prefill_goes_at_once_beside_streams_with_slack() -> None:
    core = scheduler(lm_in_flight=1, refuse=False, ramp=2, prefill_rows=1)
    playing(core, 1, 0.0)
    core.submit(arrival(2, 0.05), 0.05)
    (launch,) = prefills(core, 0.05)
    assert launch.held_s == 0


def test_a_crowded_house_gathers_prefills() -> None:
    core = scheduler(slots=4, lm_in_flight=1, refuse=False, ramp=2)
    for request in range(3):
        playing(core, request, 0.0)
    core.submit(arrival(3, 0.1, ttfa_s=10.0), 0.1)
    plan = core.plan(0.1)
    assert [launch.stage for launch in plan.launches] == [Stage.DECODE]
    run(core, plan.launches[0], 0.11, max_steps=1000)
    assert prefills(core, 0.11) == []


def test_the_encoder_gathers_nobody() -> None:
    core = scheduler(slots=4, lm_in_flight=1, refuse=False, ramp=2)
    for request in range(3):
        playing(core, request, 0.0)
    core.submit(arrival(3, 0.1, ttfa_s=10.0, clip=0, clip_s=1.0), 0.1)
    assert [launch.stage for launch in core.plan(0.1).launches] == [Stage.ENCODE]


def test_an_idle_server_refuses_nothing() -> None:
    slow = SEED | {(Lane.LM, Stage.DECODE, 1, 0): 5.0}
    assert scheduler(estimates=slow).submit(arrival(1), 0.0) is None


@pytest.mark.parametrize(
    ("slow", "message"),
    [
        ({(Lane.LM, Stage.DECODE, 1, 0): 0.09}, "could not be kept in real time"),
        ({(Lane.BACKGROUND, Stage.CODEC, 16, 10): 1.0}, "could not be kept in real time"),
        ({(Lane.LM, Stage.PREFILL, 1, 32): 0.3}, "after its deadline"),
    ],
)
def test_a_stream_that_would_miss_is_refused(slow: dict[Any, float], message: str) -> None:
    core = scheduler(estimates=SEED | slow)
    core.submit(arrival(1), 0.0)
    core.plan(0.0)
    refused = core.submit(arrival(2), 0.0)
    assert refused is not None and refused.code == "overloaded"
    assert message in refused.message and 0.0 < refused.retry_after_s <= 60.0
    assert core.submit(arrival(3, ttfa_s=None), 0.0) is None, "no deadline, so it may wait"
    assert core.submit(arrival(4), 0.0) is not None


def test_a_stream_that_cannot_get_a_slot_in_time_is_refused() -> None:
    core = scheduler(slots=2)
    core.submit(arrival(1, max_steps=1000), 0.0)
    core.submit(arrival(2, max_steps=1000), 0.0)
    core.plan(0.0)
    refused = core.submit(arrival(3), 0.0)
    assert refused is not None and refused.code == "overloaded"
    assert refused.retry_after_s > 5.0


def test_a_full_queue_refuses_everyone() -> None:
    core = scheduler(slots=1, max_waiting=2)
    for request in range(3):
        assert core.submit(arrival(request, ttfa_s=None), 0.0) is None
    refused = core.submit(arrival(3, ttfa_s=None), 0.0)
    assert refused is not None and refused.code == "overloaded"
    assert "3 requests wait, at most 2" in refused.message


def test_a_hint_and_the_policy_choose_the_ramp() -> None:
    sizes = []
    for hint, ramp in [(1, "load"), (5, "load"), (100, "load"), (None, 1), (None, "load")]:
        core = scheduler(ramp=ramp, lm_in_flight=1)
        core.submit(arrival(1, chunk_frames=hint), 0.0)
        codec: list[Launch] = []
        while not codec:
            launches = core.plan(0.0).launches
            codec = [launch for launch in launches if launch.stage is Stage.CODEC]
            for launch in launches:
                run(core, launch, 0.0)
        assert codec[0].frames is not None
        sizes.append(int(codec[0].frames[0]))
    assert sizes == [1, 4, 10, 4, 1]
