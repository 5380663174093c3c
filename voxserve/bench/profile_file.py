"""What a profile holds: how long each executable takes, and how lanes slow one another.

Plain data without torch, so that a prediction needs neither the model nor its device.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from voxserve.errors import InvalidRequestError
from voxserve.scheduler.estimates import Bucket
from voxserve.scheduler.launches import Lane, Stage
from voxserve.scheduler.policy import Shape

SCHEMA = 1


class Timing(msgspec.Struct, frozen=True):
    """One executable on its lane. alone_s, alone_p90_s: median and 90th percentile of its runs.

    beside_s: median while the lane named by the key was always busy.
    """

    lane: str
    stage: str
    rows: int
    units: int
    alone_s: float
    alone_p90_s: float
    beside_s: dict[str, float]
    runs: int

    @property
    def bucket(self) -> Bucket:
        return Lane[self.lane], Stage[self.stage], self.rows, self.units


class Sharing(msgspec.Struct, frozen=True):
    """Speed of a lane while others are always busy, as a share of its speed alone."""

    lane: str
    beside: list[str]
    rate: float


class Profile(msgspec.Struct, frozen=True):
    """shape: the fields of `policy.Shape`. prompt_rows: prefill positions of a usual text.

    gap_s: from the end of a launch to the begin of the next on its lane, when the next is queued
    as soon as the first is seen to be done. config: of the engine and its policy.
    """

    schema: int
    model: str
    made_at: str
    config: dict[str, Any]
    machine: dict[str, Any]
    device: str
    dtype: str
    shape: dict[str, Any]
    samples_per_frame: int
    prompt_rows: int
    gap_s: float
    timings: list[Timing]
    sharing: list[Sharing]

    def estimates(self) -> dict[Bucket, float]:
        """What seeds the scheduler's estimates."""
        return {timing.bucket: timing.alone_p90_s for timing in self.timings}

    def scheduler_shape(self) -> Shape:
        return msgspec.convert(self.shape, Shape)

    def rates(self, busy: Iterable[Lane]) -> dict[Lane, float]:
        """Speed of each busy lane beside the others; of sets never measured, that of the pairs."""
        lanes = list(busy)
        known = {(entry.lane, frozenset(entry.beside)): entry.rate for entry in self.sharing}
        rates = {}
        for lane in lanes:
            others = frozenset(other.name for other in lanes if other is not lane)
            rate = 1.0
            for other in others:
                rate *= known.get((lane.name, frozenset({other})), 1.0)
            rates[lane] = known.get((lane.name, others), rate) if others else 1.0
        return rates


def write(profile: Profile, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n")


def read(path: Path) -> Profile:
    """Raises InvalidRequestError naming the file."""
    try:
        profile = msgspec.json.decode(path.read_bytes(), type=Profile)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidRequestError(f"{path} is not a profile: {error}") from error
    if profile.schema != SCHEMA:
        raise InvalidRequestError(
            f"{path} has schema {profile.schema}, this version reads {SCHEMA}"
        )
    return profile
