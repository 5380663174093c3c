"""Time a model's executables on every way of dividing the device, and choose one.

First a survey: each split is built and timed at a few buckets, alone and beside the other lane's
load. Then every executable is timed on the split that carries the most.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import numpy as np

from voxserve.bench import workloads
from voxserve.bench.drive import Driver, Pace
from voxserve.bench.profile_file import SCHEMA, Choice, Profile, Split
from voxserve.bench.result import machine
from voxserve.bench.survey import Survey, configured, opened, survey, tidy
from voxserve.bench.timing import (
    SETS,
    Report,
    gap_between,
    loads_of,
    measurements,
    sharing_of,
    timings_of,
)
from voxserve.config import Config
from voxserve.engine.build import target_of
from voxserve.engine.start import load
from voxserve.plugin import HostLogic
from voxserve.requests import ReferenceClip, SpeechRequest

SURVEY_SHARE = 0.6
"""Of the time that is given to a profile."""
CLIP_S = 6.9
CLIP_WORDS = (
    "The morning train was almost empty, so we opened the window and watched the hills go by."
)
"""Of a recording as long as that of published measurements."""


@dataclass(frozen=True, slots=True)
class Task:
    """What to measure.

    minutes: for the measurements and for building the splits, once the weights are loaded; where
    building takes longer, measurements become short. splits, rows, target: as in `Survey`; with an
    empty list of splits the configured one is kept.
    """

    minutes: float = 3.0
    splits: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    target: float | None = None


def profile(config: Config, task: Task, report: Report) -> Profile:
    """Survey, choose, and measure what was chosen.

    Raises CheckpointError, ValueError when the memory does not suffice.
    """
    host, model = load(config, report)
    spec, begin_s = host.spec, time.monotonic()
    splits: list[Split] = []
    choice: Choice | None = None
    if task.splits != ():
        until_s = begin_s + 60 * task.minutes * SURVEY_SHARE
        wanted = Survey(until_s, task.splits, task.rows, task.target)
        splits, choice = survey(config, spec, model, wanted, report)
        for number, one in enumerate(choice.candidates, 1):
            report(one.told, number, len(choice.candidates))
        config = configured(config, choice.winner.settings)
    tidy()
    with opened(config, spec, model) as built:
        built.warm_up(report)
        driver, loads = Driver(built), loads_of(built.keys)
        until_s = begin_s + 60 * task.minutes
        pace = Pace(until_s, measurements(built.keys) + 2 * len(SETS) + 1)
        gap_s = gap_between(driver, loads, pace)
        timings = timings_of(driver, built.keys, loads, pace, report)
        sharing = sharing_of(driver, loads, pace, report)
    target = target_of(config.engine)
    return Profile(
        schema=SCHEMA,
        model=config.model,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        config=config.model_dump(mode="json", include={"engine", "policy"}),
        machine=machine(),
        device=target.device,
        dtype=target.dtype,
        sms=built.sms,
        shape=msgspec.to_builtins(built.shape),
        samples_per_frame=built.spec.samples_per_frame,
        prompt_rows=_prompt_rows(host),
        gap_s=gap_s,
        timings=timings,
        sharing=sharing,
        splits=splits,
        choice=choice,
    )


def _prompt_rows(host: HostLogic) -> int:
    """Prefill positions that half of the texts of the usual workload do not exceed; with a clip and
    its words where the model has no voice of its own."""
    clip = None
    if host.info.cloning and host.info.default_voice is None:
        samples = round(CLIP_S * (host.spec.clip_rate_hz or 0))
        clip = ReferenceClip("silence", np.zeros(samples, np.float32), CLIP_WORDS)
    rows = [
        len(host.prompt(SpeechRequest(text=row.text, clip=clip)).rows)
        for row in workloads.load("libritts").rows
    ]
    return int(np.median(rows))
