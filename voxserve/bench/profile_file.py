"""What a profile holds: run times of executables, how lanes slow one another, and which split won.

Plain data without torch, so that a prediction needs neither the model nor its device.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from voxserve.errors import InvalidRequestError
from voxserve.scheduler.estimates import Bucket
from voxserve.scheduler.launches import Lane, Stage
from voxserve.scheduler.policy import Shape

SCHEMA = 2


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


class Split(msgspec.Struct, frozen=True):
    """One way of dividing the SMs, timed at a few buckets.

    codec_sms: as asked for, 0 sets nothing apart. sms: what each partition got; empty on a CPU.
    timings: of the LM lane and of the background lane, beside one another's load.
    """

    codec_sms: int
    sms: dict[str, int]
    timings: list[Timing]

    @property
    def name(self) -> str:
        """SMs of the LM and of the codec, where there are such."""
        if not self.codec_sms:
            return "no partition"
        if not self.sms:
            return f"{self.codec_sms} for the codec"
        return f"{self.sms['lm']}/{self.sms['codec']}"

    def of(self, lane: Lane, stage: Stage) -> list[Timing]:
        """Timings of one stage on one lane, small batches first."""
        found = [t for t in self.timings if (t.lane, t.stage) == (lane.name, stage.name)]
        return sorted(found, key=lambda timing: timing.rows)


class Candidate(msgspec.Struct, frozen=True):
    """One way of sharing the device, in requests a second that LM and codec sustain side by side.

    settings: dotted keys of the configuration. capacity: of both together.
    """

    name: str
    settings: dict[str, Any]
    lm_rate: float
    codec_rate: float
    capacity: float

    @property
    def told(self) -> str:
        """What a person reads."""
        return (
            f"{self.name}: LM {self.lm_rate:.1f} requests/s, codec {self.codec_rate:.1f}, "
            f"together {self.capacity:.1f}"
        )


class Choice(msgspec.Struct, frozen=True):
    """Which candidate won. target: the load that the codec had to keep up with, if one was named.

    frames: of a usual request. lm_alone, codec_alone: requests a second of each on every SM.
    """

    candidates: list[Candidate]
    chosen: str
    target: float | None
    frames: float
    lm_alone: float
    codec_alone: float

    @property
    def winner(self) -> Candidate:
        return next(one for one in self.candidates if one.name == self.chosen)


class Profile(msgspec.Struct, frozen=True):
    """shape: the fields of `policy.Shape`. prompt_rows: prefill positions of a usual text.

    gap_s: from the end of a launch to the begin of the next on its lane, when the next is queued
    as soon as the first is seen to be done. config: of the engine and its policy, with the chosen
    split in force; `timings` and `sharing` are of that one. splits: all that were tried.
    """

    schema: int
    model: str
    made_at: str
    config: dict[str, Any]
    machine: dict[str, Any]
    device: str
    dtype: str
    sms: dict[str, int]
    shape: dict[str, Any]
    samples_per_frame: int
    prompt_rows: int
    gap_s: float
    timings: list[Timing]
    sharing: list[Sharing]
    splits: list[Split] = []
    choice: Choice | None = None

    @property
    def codec_sms(self) -> int:
        return int(self.config["engine"].get("codec_sms", 0))

    def estimates(self) -> dict[Bucket, float]:
        """What seeds the scheduler's estimates."""
        return {timing.bucket: timing.alone_p90_s for timing in self.timings}

    def scheduler_shape(self) -> Shape:
        return msgspec.convert(self.shape, Shape)

    def seconds(self, bucket: Bucket) -> float:
        """Run time of an executable alone; between and beyond the measured ones, interpolated.

        Raises InvalidRequestError for a stage that was not measured on that lane.
        """
        lane, stage, rows, units = bucket
        like = [t for t in self.timings if (t.lane, t.stage) == (lane.name, stage.name)]
        if not like:
            raise InvalidRequestError(f"the profile has no {stage.name} on the {lane.name} lane")
        wide = [t.units for t in like if t.units >= units]
        held = min(wide) if wide else max(t.units for t in like)
        return _at([t for t in like if t.units == held], rows)

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

    def at_split(self, codec_sms: int) -> "Profile":
        """The profile as it would be with another of the splits that were tried.

        Decode steps and background batches are scaled as the few of them were that were timed on
        every split; all else runs on the whole device anyway. Raises InvalidRequestError naming the
        splits.
        """
        if codec_sms == self.codec_sms:
            return self
        splits = {split.codec_sms: split for split in self.splits}
        if not {codec_sms, self.codec_sms} <= set(splits):
            tried = ", ".join(map(str, splits)) or "none"
            raise InvalidRequestError(f"no split gave the codec {codec_sms} SMs; tried: {tried}")
        here, there = splits[self.codec_sms], splits[codec_sms]
        pairs = ((Lane.LM, Stage.DECODE), (Lane.BACKGROUND, Stage.CODEC))
        timings = [
            _moved(timing, here, there) if timing.bucket[:2] in pairs else timing
            for timing in self.timings
        ]
        sharing = [e for e in self.sharing if sorted([e.lane, *e.beside]) != ["BACKGROUND", "LM"]]
        for lane, stage in pairs:
            largest = there.of(lane, stage)[-1]
            sharing += [
                Sharing(lane.name, [other], min(1.0, largest.alone_s / beside_s))
                for other, beside_s in largest.beside_s.items()
            ]
        config = self.config | {"engine": self.config["engine"] | {"codec_sms": codec_sms}}
        return msgspec.structs.replace(
            self, timings=timings, sharing=sharing, config=config, sms=there.sms
        )


def _moved(timing: Timing, here: Split, there: Split) -> Timing:
    """A timing of one split as it would be on another."""
    lane, stage, rows, _ = timing.bucket
    known = {t.rows: t.alone_s for t in here.of(lane, stage)}
    both = [t for t in there.of(lane, stage) if t.rows in known]
    ratios = [t.alone_s / known[t.rows] for t in both]
    ratio = float(np.interp(rows, [t.rows for t in both], ratios))
    alone_s, alone_p90_s = timing.alone_s * ratio, timing.alone_p90_s * ratio
    return msgspec.structs.replace(timing, alone_s=alone_s, alone_p90_s=alone_p90_s, beside_s={})


def _at(timings: Sequence[Timing], rows: int) -> float:
    """Seconds at a number of rows; beyond the largest batch, in proportion to the rows."""
    ordered = sorted(timings, key=lambda timing: timing.rows)
    largest = ordered[-1]
    if rows > largest.rows:
        return largest.alone_s * rows / largest.rows
    known = [timing.rows for timing in ordered]
    return float(np.interp(rows, known, [timing.alone_s for timing in ordered]))


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
