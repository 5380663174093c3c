"""The scheduler driven by hand, one launch at a time."""

from typing import Any

import numpy as np
import pytest

from tests.scheduler.world import arrival, run, scheduler
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.launches import ALL_STEPS, Lane, Launch, Stage


def only(launches: list[Launch], stage: Stage) -> Launch:
    (launch,) = [launch for launch in launches if launch.stage is stage]
    return launch


def drive(
    core: Scheduler, now: float, seconds: float, max_steps: int = 40
) -> list[tuple[float, Launch]]:
    """Run everything for a while, each launch taking 1 ms on its lane. Returns what ran."""
    ran: list[tuple[float, Launch]] = []
    in_flight: list[Launch] = []
    end = now + seconds
    while now < end:
        for launch in in_flight:
            run(core, launch, now, max_steps=max_steps)
        in_flight = core.plan(now).launches
        ran += [(now, launch) for launch in in_flight]
        now += 0.001
    for launch in in_flight:
        run(core, launch, now, max_steps=max_steps)
    return ran


def test_one_request_from_prefill_to_release() -> None:
    core = scheduler()
    assert core.submit(arrival(7), 0.0) is None
    first, second = core.plan(0.0).launches
    assert (first.stage, first.rows, first.units) == (Stage.PREFILL, 1, 32)
    assert (second.stage, second.rows) == (Stage.DECODE, 1)
    assert first.steps is not None and first.steps.tolist() == [0]
    assert second.steps is not None and second.steps.tolist() == [1]
    assert (core.running, core.slots_free, core.pages_free) == (1, 3, (14,))
    run(core, first, 0.004)
    plan = core.plan(0.004)
    codec = only(plan.launches, Stage.CODEC)
    assert (codec.lane, codec.units, codec.reason) == (Lane.URGENT, 1, "first")
    run(core, second, 0.005)
    outcome = run(core, codec, 0.006)
    assert outcome.deliver is not None and outcome.deliver.tolist() == [True]
    assert outcome.final is not None and outcome.final.tolist() == [False]
    run(core, only(plan.launches, Stage.DECODE), 0.006)
    ran = drive(core, 0.007, 1.0)
    chunks = [launch for _, launch in ran if launch.frames is not None]
    frames = [int(launch.frames[0]) for launch in chunks if launch.frames is not None]
    assert frames == [2, 4, 10, 10, 10, 3]
    last = chunks[-1].last
    assert last is not None and last.tolist() == [True]
    assert [(r.request, r.cause) for r in core.released()] == [(7, "finished")]
    assert core.idle and core.slots_free == 4 and core.pages_free == (16,)


def test_end_without_a_frame_is_reported_by_finish() -> None:
    core = scheduler(lm_in_flight=1)
    core.submit(arrival(1), 0.0)
    (prefill,) = core.plan(0.0).launches
    outcome = run(core, prefill, 0.004, length=0)
    assert outcome.finished == [1]
    assert [r.cause for r in core.released()] == ["finished"]
    assert core.idle


def test_a_slot_is_free_only_when_no_launch_holds_it() -> None:
    core = scheduler()
    core.submit(arrival(1), 0.0)
    prefill, decode = core.plan(0.0).launches
    assert core.cancel(1, 0.001) == 0.0
    assert core.cancel(1, 0.001) is None
    assert core.released() == [] and core.slots_free == 3
    run(core, prefill, 0.004)
    assert core.released() == []
    run(core, decode, 0.014)
    (released,) = core.released()
    assert (released.request, released.cause) == (1, "cancelled")
    assert core.idle and core.slots_free == 4 and core.pages_free == (16,)


def test_a_queued_request_that_is_cancelled_is_never_prefilled() -> None:
    core = scheduler(slots=1)
    core.submit(arrival(1, ttfa_s=None), 0.0)
    core.plan(0.0)
    core.submit(arrival(2, ttfa_s=None), 0.0)
    assert core.waiting == 1
    assert core.cancel(2, 0.0) == 0.0
    (released,) = core.released()
    assert (released.request, released.slot) == (2, -1)
    assert core.prefills == 1


def test_a_failed_row_fails_its_request_alone() -> None:
    core = scheduler(lm_in_flight=1)
    core.submit(arrival(1), 0.0)
    core.submit(arrival(2), 0.0)
    (prefill,) = core.plan(0.0).launches
    assert len(prefill.requests) == 2
    run(core, prefill, 0.004, failed=(0,))
    (released,) = core.released()
    assert (released.request, released.cause) == (1, "failed")
    drive(core, 0.005, 1.0)
    assert [(r.request, r.cause) for r in core.released()] == [(2, "finished")]


def test_live_text_stops_the_row_and_restarts_its_clock() -> None:
    core = scheduler(ramp=1)
    core.submit(arrival(1, steps_allowed=2), 0.0)
    ran = drive(core, 0.0, 0.5)
    assert [launch.stage for _, launch in ran] == [Stage.PREFILL, Stage.DECODE]
    core.allow(1, 5, 10.0)
    ran = drive(core, 10.0, 0.5)
    codec = only([launch for _, launch in ran], Stage.CODEC)
    assert codec.lane is Lane.URGENT and codec.units == 4
    core.allow(1, ALL_STEPS, 20.0)
    drive(core, 20.0, 1.0)
    assert [r.cause for r in core.released()] == ["finished"]


def test_two_requests_of_one_clip_share_its_encode() -> None:
    core = scheduler(lm_in_flight=1)
    core.submit(arrival(1, clip=3, clip_s=5.0), 0.0)
    core.submit(arrival(2, clip=3, clip_s=5.0), 0.0)
    (encode,) = core.plan(0.0).launches
    assert (encode.stage, encode.units, encode.slots.tolist()) == (Stage.ENCODE, 16, [3])
    run(core, encode, 0.01)
    (prefill,) = core.plan(0.01).launches
    assert prefill.stage is Stage.PREFILL and prefill.requests.tolist() == [1, 2]


def test_clips_that_find_no_room_wait_for_it_in_order() -> None:
    core = scheduler(clips=3, clip_pages=(10,), refuse=False)
    for request, (clip, clip_pages) in enumerate([(1, 6), (2, 6), (1, 6), (3, 3)]):
        held = arrival(request, ttfa_s=None, clip=clip, clip_s=5.0, clip_pages=(clip_pages,))
        assert core.submit(held, 0.0) is None
    first = drive(core, 0.0, 0.5)
    encoded = [launch.slots.tolist() for _, launch in first if launch.stage is Stage.ENCODE]
    prefilled = [launch.requests.tolist() for _, launch in first if launch.stage is Stage.PREFILL]
    assert encoded == [[1], [2], [3]]
    assert prefilled[0] == [0, 2] and sum(map(len, prefilled)) == 4
    assert core.idle


def test_what_a_clip_held_is_free_after_every_way_out() -> None:
    core = scheduler(clips=1, clip_pages=(6,), refuse=False)
    for request in range(4):
        held = arrival(request, clip=request, clip_s=5.0, clip_pages=(6,))
        assert core.submit(held, 0.0) is None
    core.cancel(3, 0.0)  # before its encoder ran
    (encode,) = core.plan(0.0).launches
    assert encode.requests.tolist() == [0]
    core.cancel(0, 0.0)  # while it runs
    assert core.plan(0.0).launches == []
    run(core, encode, 0.01)
    (encode,) = core.plan(0.01).launches
    assert encode.requests.tolist() == [1]
    run(core, encode, 0.02, failed=(0,))
    drive(core, 0.02, 1.0)
    ends = {r.request: r.cause for r in core.released()}
    assert ends == {0: "cancelled", 1: "failed", 2: "finished", 3: "cancelled"}
    assert core.idle


def test_a_stream_whose_clip_would_find_no_room_in_time_is_refused() -> None:
    core = scheduler(clips=1, clip_pages=(6,))
    for request in (1, 2):
        same = arrival(request, max_steps=1000, clip=1, clip_s=5.0, clip_pages=(6,))
        assert core.submit(same, 0.0) is None
    drive(core, 0.0, 0.05, max_steps=1000)
    other = arrival(3, 0.05, clip=2, clip_s=5.0, clip_pages=(1,))
    refused = core.submit(other, 0.05)
    assert refused is not None and refused.code == "overloaded"
    patient = arrival(4, ttfa_s=None, clip=2, clip_s=5.0, clip_pages=(1,))
    assert core.submit(patient, 0.05) is None
    never = core.submit(arrival(5, ttfa_s=None, clip=3, clip_s=5.0, clip_pages=(7,)), 0.0)
    assert never is not None and never.code == "out_of_memory"


def test_a_failed_encode_fails_all_that_wait_for_it() -> None:
    core = scheduler()
    core.submit(arrival(1, clip=3, clip_s=5.0), 0.0)
    core.submit(arrival(2, clip=3, clip_s=5.0), 0.0)
    (encode,) = core.plan(0.0).launches
    run(core, encode, 0.01, failed=(0,))
    assert [(r.request, r.cause) for r in core.released()] == [(1, "failed"), (2, "failed")]
    assert core.idle


def test_draining_refuses_and_finishes() -> None:
    core = scheduler()
    core.submit(arrival(1), 0.0)
    core.drain()
    refused = core.submit(arrival(2), 0.0)
    assert refused is not None and refused.code == "draining"
    drive(core, 0.0, 1.0)
    assert core.idle


@pytest.mark.parametrize(
    "changed",
    [{"pages": (17,)}, {"prompt_rows": 129}, {"clip": 1, "clip_s": 17.0}],
)
def test_what_can_never_run_is_refused_at_once(changed: dict[str, Any]) -> None:
    refused = scheduler().submit(arrival(1, **changed), 0.0)
    assert refused is not None and refused.code == "out_of_memory"


def test_synchronous_loop_has_one_launch_in_flight() -> None:
    core = scheduler(overlap=False)
    for request in range(4):
        core.submit(arrival(request), 0.0)
    now = 0.0
    for _ in range(400):
        launches = core.plan(now).launches
        assert len(launches) <= 1
        assert core.plan(now).launches == [] if launches else True
        for launch in launches:
            run(core, launch, now + 0.001)
        now += 0.001
    assert core.idle


def test_steps_of_a_row_are_launched_once_each_and_in_order() -> None:
    core = scheduler()
    core.submit(arrival(1), 0.0)
    core.submit(arrival(2), 0.0)
    steps: dict[int, list[int]] = {1: [], 2: []}
    for _, launch in drive(core, 0.0, 1.0):
        if launch.steps is not None:
            for request, step in zip(launch.requests, launch.steps, strict=True):
                steps[int(request)].append(int(step))
    for taken in steps.values():
        assert np.array_equal(taken, np.arange(40))


def generated(core: Scheduler, now: float, seconds: float) -> int:
    """LM steps launched in a while."""
    return sum(launch.steps is not None for _, launch in drive(core, now, seconds, 1000))


def test_a_row_goes_no_further_ahead_of_playback_than_asked() -> None:
    core = scheduler(ramp=2)
    core.submit(arrival(1, max_steps=1000, max_ahead_s=2.0), 0.0)
    assert generated(core, 0.0, 0.5) == pytest.approx(2.4 / 0.08, abs=2)
    plan = core.plan(0.5)
    assert plan.launches == [] and 0.5 < plan.wake_at_s <= 0.58
    assert generated(core, 0.501, 5.0) == pytest.approx(5.0 / 0.08, abs=2)
    core.played(1, 0.0, 5.6)
    assert generated(core, 5.6, 0.5) == 0


def test_a_row_goes_no_further_than_the_window_of_its_reader() -> None:
    core = scheduler(ramp=2)
    core.submit(arrival(1, max_steps=1000, window_s=4.0), 0.0)
    assert generated(core, 0.0, 2.0) == pytest.approx(4.0 / 0.08, abs=1)
    assert core.plan(2.0).wake_at_s == np.inf
    core.taken(1, 1.0)
    assert generated(core, 2.0, 1.0) == pytest.approx(1.0 / 0.08, abs=1)


def test_a_small_window_slows_a_reader_but_never_stops_it() -> None:
    core = scheduler(ramp=2)
    core.submit(arrival(1, max_steps=40, window_s=0.0), 0.0)
    drive(core, 0.0, 1.0)
    assert not core.idle
    core.taken(1, 0.8)
    core.taken(1, 1.6)
    drive(core, 1.0, 1.0)
    assert core.idle


def test_speed_shortens_the_audio_of_a_frame() -> None:
    core = scheduler(ramp=2)
    core.submit(arrival(1, max_steps=1000, speed=2.0, window_s=4.0), 0.0)
    assert generated(core, 0.0, 2.0) == pytest.approx(4.0 / 0.04, abs=1)
    assert core.cancel(1, 2.0) == pytest.approx(4.0, abs=0.04)


def test_chunks_wait_for_their_look_ahead_except_at_the_end() -> None:
    core = scheduler(ramp=1, ahead_frames=3)
    core.submit(arrival(1, max_steps=9), 0.0)
    launched: dict[int, int] = {}
    steps = 0
    for _, launch in drive(core, 0.0, 1.0, max_steps=9):
        if launch.steps is not None:
            steps += 1
        elif launch.frames is not None:
            launched[int(launch.frames[0])] = steps
    assert list(launched) == [4, 5]
    assert launched[4] >= 7


def test_the_oldest_rows_wait_when_more_run_than_a_step_holds() -> None:
    core = scheduler(decode_rows=(1, 2), refuse=False, prefill_defer_s=0)
    for request in range(4):
        core.submit(arrival(request), 0.0)
    ran = drive(core, 0.0, 2.0)
    assert max(len(launch.slots) for _, launch in ran if launch.stage is Stage.DECODE) == 2
    assert core.idle
