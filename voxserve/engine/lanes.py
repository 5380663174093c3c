"""Lanes and executables: the contract that every backend (CPU, CUDA, simulated) fulfils."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from voxserve.scheduler.launches import Lane, Launch, Stage

Arrays = Mapping[str, NDArray[np.generic]]
"""Host inputs or outputs of one run, by name, with a row per row of the launch.

The backend fills inputs up to the bucket where it runs fixed shapes; outputs may have more rows
than the launch.
"""


@dataclass(frozen=True, slots=True)
class Key:
    """An executable: stage x bucket x partition."""

    stage: Stage
    rows: int
    units: int
    partition: str


class Executable(Protocol):
    """One stage at one bucket on one partition, which the lanes of its backend can run."""

    @property
    def key(self) -> Key: ...


@dataclass(frozen=True, slots=True)
class LaneDone:
    """A launch that has run. outputs: host arrays (codes [B, K] int32 or pcm [B, S] int16).

    begin_s, end_s: CLOCK_MONOTONIC. error: for the log, of a failure that voids this launch alone.
    """

    launch: Launch
    outputs: Arrays
    begin_s: float
    end_s: float
    error: str | None = None


class LaneQueue(Protocol):
    """An in-order queue of launches. At most two are in flight on the LM lane, one elsewhere."""

    name: Lane

    def launch(self, launch: Launch, executable: Executable, inputs: Arrays) -> None:
        """Queue it; returns at once. The inputs are copied before it returns."""

    def poll(self) -> LaneDone | None:
        """The oldest launch that has run and was not reported yet, or None. Never blocks."""


class Backend(Protocol):
    """A device: builds the executables, owns the lanes and the state tensors.

    polls: nobody calls `wake`; the loop must poll while something is in flight.
    """

    lanes: Mapping[Lane, LaneQueue]
    polls: bool

    def warm(self, key: Key, inputs: Arrays) -> float:
        """Make one executable ready and run it on spare rows. Returns its seconds."""

    def executable(self, launch: Launch) -> Executable:
        """The one that the launch asks for. Raises KeyError: a miss while serving is a bug."""

    def on_done(self, wake: Callable[[], None]) -> None:
        """Call `wake` (from any thread) whenever a launch has run."""

    def close(self) -> None:
        """Stop the lanes; waits for what runs."""
