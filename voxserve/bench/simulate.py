"""Predictions: the real scheduler on a profile's times, under a virtual clock."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from voxserve.bench.arrivals import poisson
from voxserve.bench.load import Load, search_of
from voxserve.bench.profile_file import Profile
from voxserve.bench.records import Record
from voxserve.bench.simulator import Heard, Simulation, Talk
from voxserve.bench.statistics import GIVE_UP_SHARE, Figures, Window, figures
from voxserve.bench.targets import forced_frames
from voxserve.bench.workloads import Utterance, Workload
from voxserve.config import PolicyConfig
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.estimates import Bucket, Estimates
from voxserve.scheduler.launches import Arrival, Lane, Launch, Stage
from voxserve.scheduler.policy import Policy, Shape


@dataclass(frozen=True, slots=True)
class Supposed:
    """What is asked of the profile. policy: changed settings. slots: None as in the profile.

    engines: equal ones that take turns. http_s: what is not in the engine, added to every TTFA.
    codec_sms: another of the splits that the profile tried. gap_s: what the host takes between two
    launches; None as in the profile.
    """

    policy: dict[str, Any]
    slots: int | None = None
    engines: int = 1
    http_s: float = 0.0
    codec_sms: int | None = None
    gap_s: float | None = None

    def of(self, profile: Profile) -> Profile:
        """The profile with what is supposed of the device and the host."""
        if self.codec_sms is not None:
            profile = profile.at_split(self.codec_sms)
        if self.gap_s is not None:
            profile = msgspec.structs.replace(profile, gap_s=self.gap_s)
        return profile


class ProfileCosts:
    """Times and mutual slow-down of launches as measured.

    A launch beyond the queue's first two hides the host's turn behind its neighbour; only the LM
    lane has two, so decode pays no gap and everything else does; without `overlap` every launch is
    alone and pays it.
    """

    def __init__(self, profile: Profile, overlap: bool = True) -> None:
        self._profile = profile
        self._overlap = overlap
        self._seconds: dict[Bucket, float] = {}
        self._rates: dict[frozenset[Lane], dict[Lane, float]] = {}

    def seconds(self, launch: Launch) -> float:
        bucket: Bucket = (launch.lane, launch.stage, launch.rows, launch.units)
        seconds = self._seconds.get(bucket)
        if seconds is None:
            seconds = self._seconds[bucket] = self._profile.seconds(bucket)
        if launch.stage is Stage.DECODE and self._overlap:
            return seconds
        return seconds + self._profile.gap_s

    def rates(self, busy: Iterable[Lane]) -> dict[Lane, float]:
        lanes = frozenset(busy)
        if lanes not in self._rates:
            self._rates[lanes] = self._profile.rates(sorted(lanes))
        return dict(self._rates[lanes])


def predict(
    profile: Profile, workload: Workload, load: Load, supposed: Supposed
) -> tuple[list[Figures], list[Window]]:
    """Figures of each rate, seeds pooled, and the windows; ends early as a measurement does."""
    profile = supposed.of(profile)
    policy = PolicyConfig(**(profile.config["policy"] | supposed.policy)).policy()
    shape = _shape(profile, supposed.slots)
    points, windows = [], []
    rates = search_of(load)
    for rate in rates or sorted(load.rates):
        ran = [
            _window(profile, shape, policy, workload, load, supposed, rate, seed)
            for seed in load.seeds
        ]
        point = figures(ran, load.slo_ms)
        points.append(point)
        windows += ran
        if rates:
            rates.answer(point.attainment[load.slo_ms], point.goodput)
        elif point.within_1_s < GIVE_UP_SHARE:
            break
    return points, windows


def _shape(profile: Profile, slots: int | None) -> Shape:
    """The profile's, without pages: memory is taken to suffice for every slot."""
    shape = replace(profile.scheduler_shape(), pages=())
    if slots is None:
        return shape
    fewer = [rows for rows in shape.decode_rows if rows < slots]
    rows = shape.decode_rows[: len(fewer) + 1]
    return replace(shape, slots=min(slots, rows[-1]), decode_rows=rows)


def _window(
    profile: Profile,
    shape: Shape,
    policy: Policy,
    workload: Workload,
    load: Load,
    supposed: Supposed,
    rate: float,
    seed: int,
) -> Window:
    times = poisson(rate, load.window_s, seed)
    texts = list(islice(workload.draw(np.random.default_rng([seed, 1])), len(times)))
    records = []
    for engine in range(supposed.engines):
        numbers = range(engine, len(times), supposed.engines)
        talks = [_talk(profile, shape, load, n, times[n], texts[n]) for n in numbers]
        simulation = Simulation(
            Scheduler(shape, policy, Estimates(profile.estimates())),
            ProfileCosts(profile, policy.overlap and policy.lm_in_flight > 1),
            talks,
            samples_per_frame=profile.samples_per_frame,
            sample_rate_hz=shape.sample_rate_hz,
        )
        simulation.run()
        records += [
            _record(n, times[n], texts[n], simulation.heard[n], supposed.http_s) for n in numbers
        ]
    return Window(rate, seed, load.window_s, sorted(records, key=lambda record: record.index))


def _talk(
    profile: Profile, shape: Shape, load: Load, number: int, at_s: float, text: Utterance
) -> Talk:
    frames = forced_frames(len(text.text.split()), shape.frame_s)
    arrival = Arrival(
        number,
        at_s,
        ttfa_s=load.slo_ms / 1000,
        prompt_rows=profile.prompt_rows,
        max_steps=frames * shape.steps_per_frame,
    )
    return Talk(arrival, frames)


def _record(number: int, at_s: float, text: Utterance, heard: Heard, http_s: float) -> Record:
    refused = heard.state == "refused"
    end_s = heard.play_end_s - heard.audio_s - at_s if heard.complete else 0.0
    return Record(
        index=number,
        id=text.id,
        words=len(text.text.split()),
        due_s=at_s,
        late_s=0.0,
        outcome="refused" if refused else "completed" if heard.complete else "failed",
        status=503 if refused else 200,
        error="overloaded" if refused else "",
        ttfa_s=None if heard.first_s is None else heard.first_s - at_s + http_s,
        end_s=end_s,
        audio_s=heard.audio_s,
        stall_s=heard.stalled_s,
        stops=0,
        chunks=len(heard.chunks),
        stub=False,
    )
