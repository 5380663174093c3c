"""Random clients through the simulator: nothing is lost, and the oracle would do the same."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.oracle import Oracle
from tests.scheduler.world import FRAME_SAMPLES, RATE_HZ, SEED, arrival, policy, shape
from tests.sim import Costs, Planner, Simulation, Talk
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.estimates import Estimates
from voxserve.scheduler.launches import ALL_STEPS, NO_CLIP, Lane, Launch
from voxserve.scheduler.policy import Policy, Shape

MILLISECONDS = st.integers(0, 2000).map(lambda ms: ms / 1000)


@st.composite
def talks(draw: st.DrawFn) -> list[Talk]:
    """Up to a dozen clients within two seconds: any kind of request, late text, hanging up."""
    made = []
    for request in range(draw(st.integers(1, 12))):
        at = draw(MILLISECONDS)
        events: list[tuple[float, str, float]] = []
        steps_allowed = draw(st.sampled_from([ALL_STEPS, ALL_STEPS, 0, 1, 7]))
        if steps_allowed != ALL_STEPS:
            pauses = draw(st.lists(st.integers(1, 900), min_size=1, max_size=4))
            times = [at + float(ms) / 1000 for ms in np.cumsum(pauses)]
            allowed = steps_allowed
            for time in times[:-1]:
                allowed += draw(st.integers(1, 15))
                events.append((time, "allow", allowed))
            events.append((times[-1], "allow", ALL_STEPS))
        for what in draw(st.sampled_from([(), (), ("cancel",), ("fail",), ("played",)])):
            events.append((at + draw(MILLISECONDS) / 2, what, draw(st.integers(0, 20)) / 10))
        clip = draw(st.sampled_from([NO_CLIP, NO_CLIP, NO_CLIP, 0, 1, 2]))
        made.append(
            Talk(
                arrival(
                    request,
                    at,
                    ttfa_s=draw(st.sampled_from([None, 0.05, 0.2, 0.2, 1.0])),
                    prompt_rows=draw(st.sampled_from([1, 10, 33, 128])),
                    max_steps=draw(st.integers(1, 60)),
                    pages=(draw(st.integers(1, 9)),),
                    steps_allowed=steps_allowed,
                    clip=clip,
                    clip_s=0.0 if clip == NO_CLIP else draw(st.sampled_from([0.0, 3.0, 3.0])),
                    clip_pages=(0 if clip == NO_CLIP else draw(st.integers(0, 4)),),
                    speed=draw(st.sampled_from([1.0, 1.0, 0.5, 2.0])),
                    max_ahead_s=draw(st.sampled_from([np.inf, 0.0, 1.0])),
                    window_s=draw(st.sampled_from([np.inf, 0.0, 2.0])),
                    chunk_frames=draw(st.sampled_from([None, None, 1, 5, 100])),
                ),
                frames=draw(st.integers(0, 70)),
                events=events,
                read_s=draw(st.sampled_from([0.0, 0.05])),
            )
        )
    return made


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Shape, Policy]:
    lanes = draw(st.sampled_from([(True, True), (True, True), (True, False), (False, True)]))
    switches: dict[str, Any] = {
        "admission": draw(st.sampled_from(["deadline", "prefill-first"])),
        "refuse": draw(st.booleans()),
        "overlap": draw(st.sampled_from([True, True, False])),
        "urgent_lane": lanes[0],
        "background_lane": lanes[1],
        "background_batch": draw(st.sampled_from([1, 3, 8])),
        "urgent_rows": draw(st.sampled_from([1, 8])),
        "prefill_rows": draw(st.sampled_from([1, 8])),
        "max_waiting": draw(st.sampled_from([0, 3, 100])),
        "lm_in_flight": draw(st.sampled_from([1, 2, 3])),
        "ramp": draw(st.sampled_from(["load", 0, 2])),
    }
    sizes: dict[str, Any] = {
        "slots": draw(st.sampled_from([1, 3, 8])),
        "decode_rows": draw(st.sampled_from([(1, 2), (1, 2, 4, 8)])),
        "ahead_frames": draw(st.sampled_from([0, 0, 3])),
        "steps_per_frame": draw(st.sampled_from([1, 1, 3])),
        "clips": draw(st.sampled_from([1, 2])),
        "clip_pages": (draw(st.sampled_from([4, 6])),),
    }
    if draw(st.sampled_from([False, False, True])):
        sizes |= {"padded_chunks": True, "ramps": ((3, 10), (7, 10), (5,))}
    return shape(**sizes), policy(**switches)


def simulate(scheduler: Planner, clients: list[Talk], fault_rate: float) -> Simulation:
    simulation = Simulation(
        scheduler,
        Costs(),
        clients,
        samples_per_frame=FRAME_SAMPLES,
        sample_rate_hz=RATE_HZ,
        fault_rate=fault_rate,
        seed=1,
    )
    simulation.run()
    return simulation


def lines(simulation: Simulation) -> Iterator[tuple[Any, ...]]:
    """The log with arrays as lists, so that it can be compared."""
    for start, launch in simulation.log:
        yield (start, *(plain(getattr(launch, name)) for name in Launch.__slots__))


def plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


def check_all_ended_well(simulation: Simulation, core: Scheduler, world: Shape) -> None:
    steps: dict[int, list[int]] = {}
    for _, launch in simulation.log:
        if launch.steps is not None:
            for request, step in zip(launch.requests.tolist(), launch.steps, strict=True):
                steps.setdefault(request, []).append(int(step))
    assert core.idle
    assert core.slots_free == world.slots and core.pages_free == world.pages
    for request, heard in simulation.heard.items():
        talk = simulation.talks[request]
        assert heard.state in ("refused", "finished", "cancelled", "failed")
        assert heard.released == (heard.state != "refused")
        assert heard.complete == (heard.state == "finished")
        made = 0
        for index, (chunk, first, frames) in enumerate(heard.chunks):
            assert (chunk, first) == (index, made)
            made += frames
        taken = steps.get(request, [])
        assert taken == list(range(len(taken)))
        assert len(taken) <= talk.arrival.max_steps
        if heard.state == "finished":
            assert made == min(talk.frames, talk.arrival.max_steps)


def check_agreement(ours: Simulation, plainly: Simulation) -> None:
    for line, oracle_line in zip(lines(ours), lines(plainly), strict=True):
        assert line == oracle_line
    assert ours.wakes == plainly.wakes
    refused = {request: refusal.code for request, refusal in ours.refusals.items()}
    assert refused == {request: refusal.code for request, refusal in plainly.refusals.items()}
    assert ours.heard == plainly.heard


@settings(derandomize=True, max_examples=100, deadline=None)
@given(talks(), worlds(), st.sampled_from([0.0, 0.0, 0.01, 0.2]))
def test_nothing_is_lost_and_the_oracle_agrees(
    clients: list[Talk], world: tuple[Shape, Policy], fault_rate: float
) -> None:
    core = Scheduler(*world, Estimates(SEED))
    simulation = simulate(core, clients, fault_rate)
    check_all_ended_well(simulation, core, world[0])
    most = {Lane.LM: world[1].lm_in_flight, Lane.BACKGROUND: 1, Lane.URGENT: 1}
    assert all(simulation.in_flight_most[lane] <= most[lane] for lane in Lane)
    check_agreement(simulation, simulate(Oracle(*world, Estimates(SEED)), clients, fault_rate))


def crowd(seed: int) -> list[Talk]:
    """150 streams of many lengths, about three times what eight slots can serve."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(0.02, 150))
    lengths = random.integers(10, 120, 150)
    return [
        Talk(arrival(i, float(at), max_steps=100, pages=(1,)), int(frames))
        for i, (at, frames) in enumerate(zip(times, lengths, strict=True))
    ]


@pytest.mark.parametrize(
    "changed", [{}, {"admission": "prefill-first"}, {"background_batch": 2, "overlap": False}]
)
def test_the_oracle_agrees_in_a_crowd(changed: dict[str, Any]) -> None:
    world = shape(slots=8), policy(**changed)
    core = Scheduler(*world, Estimates(SEED))
    simulation = simulate(core, crowd(1), 0.0)
    check_all_ended_well(simulation, core, world[0])
    assert 0 < len(simulation.refusals) < 150
    check_agreement(simulation, simulate(Oracle(*world, Estimates(SEED)), crowd(1), 0.0))


def test_the_same_seed_gives_the_same_launches() -> None:
    first, second = (
        simulate(Scheduler(shape(slots=8), policy(), Estimates(SEED)), crowd(5), 0.001)
        for _ in range(2)
    )
    assert list(lines(first)) == list(lines(second))
    assert first.heard == second.heard
