"""Which chunks go when, and on which lane."""

from typing import Any

import numpy as np
import pytest

from tests.scheduler.world import SEED, arrival, policy, shape
from voxserve.scheduler.chunks import Batch, Chunks
from voxserve.scheduler.estimates import Estimates
from voxserve.scheduler.launches import Lane, Launch, Stage
from voxserve.scheduler.lifecycle import Phase, Request
from voxserve.scheduler.rows import Rows

STEP_S = 0.01
RUN_S = 0.006
URGENT_S = 0.1
LIKE_TEN = 2


def codec(rows: int, frames: int) -> Launch:
    nobody = np.zeros(0, np.int32)
    return Launch(0, Lane.BACKGROUND, Stage.CODEC, rows, frames, nobody, nobody)


class Ready:
    """Rows with chunks to decode, and the choice among them."""

    def __init__(self, **changed: Any) -> None:
        world = shape(slots=40)
        self.rows = Rows(world)
        self.estimates = Estimates(SEED)
        self.chunks = Chunks(world, policy(**changed), self.estimates, self.rows)
        self.count = 0

    def add(
        self,
        due: float,
        frames: int = 10,
        *,
        sent: bool = True,
        ramp: int = LIKE_TEN,
        ended: bool = False,
        ttfa_s: float | None = 0.2,
    ) -> None:
        """A row with `frames` decodable frames whose next chunk is due then."""
        slot = self.count
        request = Request(arrival(slot, ttfa_s=ttfa_s), slot, 0.2, Phase.QUEUED, 100)
        self.rows.admit(request, slot, ramp, 0.0)
        self.rows.sent[slot] = sent
        self.rows.due[slot] = due
        self.rows.frames[slot] = frames
        if ended:
            self.rows.ended[slot] = True
            self.rows.need[slot] = 1
        self.count += 1

    def choose(self, now: float, *, idle: bool = False) -> tuple[Batch | None, Batch | None]:
        self.chunks.look(now)
        return self.chunks.urgent(STEP_S, idle), self.chunks.background(STEP_S, idle)


def told(batch: Batch | None) -> tuple[list[int], str] | None:
    return None if batch is None else (batch.slots.tolist(), batch.reason)


def test_first_chunks_are_urgent_whatever_their_deadline() -> None:
    ready = Ready()
    ready.add(100.0, sent=False)
    ready.add(50.0, sent=True)
    urgent, background = ready.choose(0.0)
    assert told(urgent) == ([0], "first") and background is None


def test_without_deadline_a_first_chunk_waits_like_any_other() -> None:
    ready = Ready()
    ready.add(5.0, sent=False, ttfa_s=None)
    assert ready.choose(0.0) == (None, None)
    urgent, background = ready.choose(4.99)
    assert urgent is None and told(background) == ([0], "due")


def test_urgent_chunks_go_by_deadline_eight_at_a_time() -> None:
    ready = Ready()
    for due in range(10):
        ready.add(0.09 - due / 1000)
    urgent, background = ready.choose(0.0)
    assert told(urgent) == ([9, 8, 7, 6, 5, 4, 3, 2], "deadline") and background is None
    assert urgent is not None and (urgent.lane, urgent.rows, urgent.units) == (Lane.URGENT, 8, 10)


def test_a_waiting_chunk_is_promoted_when_its_time_has_come() -> None:
    ready = Ready()
    ready.add(1.0)
    assert ready.choose(0.0) == (None, None)
    promoted = 1.0 - URGENT_S
    assert ready.chunks.wake_at_s(True, False) == promoted
    assert ready.choose(promoted - 1e-9)[0] is None
    assert told(ready.choose(promoted)[0]) == ([0], "deadline")


def test_a_batch_starts_early_enough_for_its_deadline() -> None:
    ready = Ready()
    ready.add(1.0)
    ready.add(2.0)
    assert ready.choose(0.0) == (None, None)
    start = 1.0 - URGENT_S - RUN_S - STEP_S
    assert ready.chunks.wake_at_s(True, True) == pytest.approx(start)
    assert ready.choose(start - 1e-6)[1] is None
    assert told(ready.choose(start + 1e-6)[1]) == ([0, 1], "due")


def test_enough_chunks_start_a_batch_up_to_the_largest() -> None:
    ready = Ready()
    for due in range(7):
        ready.add(10.0 - due)
    assert ready.choose(0.0)[1] is None
    ready.add(20.0)
    assert told(ready.choose(0.0)[1]) == ([6, 5, 4, 3, 2, 1, 0, 7], "full")
    for due in range(20):
        ready.add(30.0 + due)
    batch = ready.choose(0.0)[1]
    assert batch is not None and (len(batch.slots), batch.rows) == (16, 16)


@pytest.mark.parametrize(("eight_s", "taken"), [(0.0035, 8), (0.0055, 10)])
def test_a_padded_batch_must_be_worth_it(eight_s: float, taken: int) -> None:
    """Sixteen rows take 6 ms however many of them are padding."""
    ready = Ready()
    ready.estimates.record(codec(8, 10), eight_s)
    for due in range(10):
        ready.add(10.0 + due)
    batch = ready.choose(0.0)[1]
    assert batch is not None and len(batch.slots) == taken
    assert batch.rows == (8 if taken == 8 else 16)


def test_an_idle_lm_lets_any_chunk_go() -> None:
    ready = Ready()
    ready.add(9.0)
    assert told(ready.choose(0.0, idle=True)[1]) == ([0], "idle")


def test_a_batch_holds_the_frame_bucket_of_its_most_urgent_chunk() -> None:
    ready = Ready(background_batch=1)
    ready.add(3.0, 4, ramp=1)
    ready.add(1.0, 10)
    ready.add(2.0, 3, ended=True)
    ready.add(4.0, 10)
    batch = ready.choose(0.0)[1]
    assert batch is not None and batch.units == 10
    assert batch.slots.tolist() == [1, 2, 3]
    assert batch.frames.tolist() == [10, 3, 10]
    assert batch.last.tolist() == [False, True, False]


def test_a_last_chunk_leads_in_the_smallest_bucket_that_holds_it() -> None:
    ready = Ready(background_batch=1)
    ready.add(1.0, 3, ended=True)
    ready.add(2.0, 10)
    ready.add(3.0, 4, ramp=1)
    batch = ready.choose(0.0)[1]
    assert batch is not None and (batch.units, batch.slots.tolist()) == (4, [0, 2])


def test_equal_deadlines_go_in_order_of_arrival() -> None:
    ready = Ready(background_batch=1)
    for _ in range(5):
        ready.add(1.0)
    ready.rows.order[:5] = [4, 2, 0, 1, 3]
    assert told(ready.choose(0.0)[1]) == ([2, 3, 1, 4, 0], "full")


@pytest.mark.parametrize(
    ("off", "lane"), [("urgent_lane", Lane.BACKGROUND), ("background_lane", Lane.URGENT)]
)
def test_with_one_lane_off_the_other_serves_all(off: str, lane: Lane) -> None:
    ready = Ready(**{off: False})
    ready.add(1.0, sent=False)
    ready.add(0.5)
    (batch,) = (made for made in ready.choose(0.0) if made)
    assert batch.lane is lane and told(batch) == ([0, 1], "first")
    ready.rows.decoding[0] = True
    assert ready.choose(0.0) == (None, None)
    assert ready.chunks.wake_at_s(lane is Lane.BACKGROUND, lane is Lane.URGENT) > 1e9
    (batch,) = (made for made in ready.choose(0.4) if made)
    assert batch.lane is lane and told(batch) == ([1], "deadline")


def test_both_lanes_off_is_refused() -> None:
    with pytest.raises(ValueError, match="both off"):
        Ready(urgent_lane=False, background_lane=False)
