"""The table of phases and events."""

import itertools

import pytest

from tests.scheduler.world import arrival
from voxserve.scheduler.lifecycle import CAUSES, TABLE, Event, LifecycleError, Phase, Request


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(Phase, Event)))
def test_a_pair_is_in_the_table_or_raises(phase: Phase, event: Event) -> None:
    request = Request(arrival(3), 0, 0.2, phase, 10)
    if (phase, event) in TABLE:
        request.advance(event)
        assert request.phase is TABLE[phase, event]
    else:
        with pytest.raises(LifecycleError, match=f"request 3 got {event.name} in .*{phase.name}"):
            request.advance(event)
        assert request.phase is phase


def test_every_request_can_be_cancelled_and_fail_until_it_is_over() -> None:
    for phase in Phase:
        over = Request(arrival(1), 0, 0.2, phase, 10).over
        assert over == ((phase, Event.CANCELLED) not in TABLE)
        assert over == ((phase, Event.FAILED) not in TABLE)


def test_every_way_out_leads_to_one_release() -> None:
    for phase in CAUSES:
        assert TABLE[phase, Event.RELEASED] is Phase.RELEASED
    assert not any(phase is Phase.RELEASED for phase, _ in TABLE)
