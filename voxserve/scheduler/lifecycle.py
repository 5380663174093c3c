"""The life of a request: one table of phases and events, and the record that carries the phase."""

from dataclasses import dataclass
from enum import IntEnum

from voxserve.scheduler.launches import Arrival


class Phase(IntEnum):
    """Where a request stands. From FINISHED on it is over and only waits for its last launch."""

    ENCODING = 0
    QUEUED = 1
    PREFILLING = 2
    RUNNING = 3
    CLOSING = 4
    FINISHED = 5
    CANCELLED = 6
    FAILED = 7
    RELEASED = 8


class Event(IntEnum):
    """What happens to a request.

    ENCODED: its clip's features are there. ADMITTED: its prefill was launched. STEPPED: step 0 has
    run. ENDED: the LM part is over. COMPLETED: so is its last chunk. CANCELLED and FAILED end it
    early. RELEASED: no launch holds it any more.
    """

    ENCODED = 0
    ADMITTED = 1
    STEPPED = 2
    ENDED = 3
    COMPLETED = 4
    CANCELLED = 5
    FAILED = 6
    RELEASED = 7


TABLE: dict[tuple[Phase, Event], Phase] = {
    (Phase.ENCODING, Event.ENCODED): Phase.QUEUED,
    (Phase.ENCODING, Event.CANCELLED): Phase.CANCELLED,
    (Phase.ENCODING, Event.FAILED): Phase.FAILED,
    (Phase.QUEUED, Event.ADMITTED): Phase.PREFILLING,
    (Phase.QUEUED, Event.CANCELLED): Phase.CANCELLED,
    (Phase.QUEUED, Event.FAILED): Phase.FAILED,
    (Phase.PREFILLING, Event.STEPPED): Phase.RUNNING,
    (Phase.PREFILLING, Event.CANCELLED): Phase.CANCELLED,
    (Phase.PREFILLING, Event.FAILED): Phase.FAILED,
    (Phase.RUNNING, Event.ENDED): Phase.CLOSING,
    (Phase.RUNNING, Event.CANCELLED): Phase.CANCELLED,
    (Phase.RUNNING, Event.FAILED): Phase.FAILED,
    (Phase.CLOSING, Event.COMPLETED): Phase.FINISHED,
    (Phase.CLOSING, Event.CANCELLED): Phase.CANCELLED,
    (Phase.CLOSING, Event.FAILED): Phase.FAILED,
    (Phase.FINISHED, Event.RELEASED): Phase.RELEASED,
    (Phase.CANCELLED, Event.RELEASED): Phase.RELEASED,
    (Phase.FAILED, Event.RELEASED): Phase.RELEASED,
}

CAUSES = {
    Phase.FINISHED: "finished",
    Phase.CANCELLED: "cancelled",
    Phase.FAILED: "failed",
}
"""`Released.cause` by the phase in which a request was over."""


class LifecycleError(RuntimeError):
    """An event came in a phase where it cannot: a bug of the scheduler or of whoever drives it."""


@dataclass(slots=True, eq=False)
class Request:
    """One request from `submit` to its release.

    order: its number in order of arrival. deadline_s: of its first chunk, infinity where it has
    none. allowed: LM steps for which text is there. slot: -1 until admitted. encodes: launches of
    the encoder that hold it (a row counts those of the other stages).
    """

    arrival: Arrival
    order: int
    deadline_s: float
    phase: Phase
    allowed: int
    slot: int = -1
    encodes: int = 0

    @property
    def over(self) -> bool:
        return self.phase >= Phase.FINISHED

    def advance(self, event: Event) -> None:
        """Take the step that the table names. Raises LifecycleError on a pair not in it."""
        after = TABLE.get((self.phase, event))
        if after is None:
            raise LifecycleError(
                f"request {self.arrival.request} got {event.name} in phase {self.phase.name}"
            )
        self.phase = after
