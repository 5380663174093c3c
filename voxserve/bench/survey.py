"""Every way of dividing a device, timed at a few buckets, and the choice among them."""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from voxserve.bench import workloads
from voxserve.bench.drive import Driver, Pace, warm_keys
from voxserve.bench.profile_file import Choice, Split
from voxserve.bench.splits import choose
from voxserve.bench.targets import forced_frames
from voxserve.bench.timing import Report, gap_between, loads_of, measurements, timings_of
from voxserve.config import Config
from voxserve.engine.build import Built, build
from voxserve.engine.lanes import Key
from voxserve.plugin import ModelSpec, SpeechModel
from voxserve.scheduler.buckets import Buckets
from voxserve.scheduler.launches import Stage
from voxserve.scheduler.policy import Shape

SIXTEENTHS = (2, 3, 4, 5, 6, 8)
"""Shares of a device's SMs that are tried for the codec."""
SM_STEP = 8
"""Drivers divide in such steps on the GPUs of today; what they really gave is noted."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What to try.

    until_s: CLOCK_MONOTONIC; a part of it goes to each split, building included. splits: SMs for
    the codec; None takes a few shares of the device, as many as there is time for.
    rows: decode buckets; None takes what `usual_rows` says. target: requests a second that the
    codec must keep up with, None for as many as the LM carries.
    """

    until_s: float
    splits: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    target: float | None = None


def survey(
    config: Config, spec: ModelSpec, model: SpeechModel, wanted: Survey, report: Report
) -> tuple[list[Split], Choice]:
    """All splits, the one without a partition first, and which way of sharing carries the most."""
    asked = list(dict.fromkeys((0, *(wanted.splits or ()))))
    splits: list[Split] = []
    report("surveying splits", 0, len(asked))
    # What each side does with the whole device, and how many SMs that is.
    expected = len(asked) if wanted.splits else 1 + len(SIXTEENTHS)
    whole, shape, gap_s = _split(config, spec, model, wanted, 0, expected)
    splits.append(whole)
    if wanted.splits is None:
        asked += _shares(whole.sms.get("whole", 0))
    for number, codec_sms in enumerate(asked[1:], 1):
        report("surveying splits", number, len(asked))
        if wanted.splits is None and time.monotonic() > wanted.until_s:
            break
        left = len(asked) - number
        found = _split(config, spec, model, wanted, codec_sms, left)[0]
        # A driver that cannot divide, or rounds two wishes to one split, adds nothing.
        if not found.sms or (found.sms["lm"] < found.sms["whole"] and not _known(found, splits)):
            splits.append(found)
    report("surveying splits", len(splits), len(splits))
    return splits, choose(splits, shape, _mean_frames(shape), gap_s, wanted.target)


def configured(config: Config, settings: dict[str, object]) -> Config:
    """The configuration with dotted keys of its sections replaced."""
    for key, value in settings.items():
        section, _, name = key.partition(".")
        changed = getattr(config, section).model_copy(update={name: value})
        config = config.model_copy(update={section: changed})
    return config


@contextmanager
def opened(config: Config, spec: ModelSpec, model: SpeechModel) -> Iterator[Built]:
    """The device side of an engine with nothing captured yet.

    Its memory is free again once nobody holds it; see `tidy`.
    """
    built = build(config, spec, model)
    try:
        yield built
    finally:
        built.backend.close()


def tidy() -> None:
    """Give the memory of engines that nobody holds any more back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _split(
    config: Config, spec: ModelSpec, model: SpeechModel, wanted: Survey, codec_sms: int, left: int
) -> tuple[Split, Shape, float]:
    """One split, the shape it was timed with, and the gap between launches (0.0 if one is set).

    left: splits that are still to come, this one included.
    """
    tidy()
    begin_s = time.monotonic()
    until_s = begin_s + (wanted.until_s - begin_s) / left
    settings = configured(config, {"engine.codec_sms": codec_sms})
    with opened(settings, spec, model) as built:
        keys = _keys(built.shape, wanted.rows, whole=not codec_sms)
        replace(built, keys=warm_keys(built, keys)).warm_up(_silent)
        driver, loads = Driver(built), loads_of(keys)
        pace = Pace(until_s, measurements(keys) + 1)
        gap_s = 0.0 if codec_sms else gap_between(driver, loads, pace)
        timings = timings_of(driver, keys, loads, pace, _silent)
        return Split(codec_sms, built.sms, timings), built.shape, gap_s


def _known(split: Split, others: Sequence[Split]) -> bool:
    return any(other.sms == split.sms for other in others)


def _shares(sms: int) -> list[int]:
    """Some shares of a device's SMs, in steps that drivers divide by."""
    shares = [round(sms * share / 16 / SM_STEP) * SM_STEP for share in SIXTEENTHS]
    return [share for share in dict.fromkeys(shares) if 0 < share < sms]


def _keys(shape: Shape, rows: tuple[int, ...] | None, whole: bool) -> list[Key]:
    """Decode steps and background batches; where nothing is set apart, prefills as well."""
    steps, batches = shape.decode_rows, shape.codec_rows
    few = usual_rows(steps)
    if rows is not None:
        few = [held for held in steps if held in rows] or [steps[-1]]
    some = (batches[0], batches[len(batches) // 2], batches[-1])
    keys = [Key(Stage.DECODE, n, 0, "lm") for n in dict.fromkeys(few)]
    keys += [Key(Stage.CODEC, n, shape.frame_buckets[-1], "codec") for n in dict.fromkeys(some)]
    if whole:
        keys.append(Key(Stage.PREFILL, shape.prefill_rows[-1], shape.prefill_tokens[0], "whole"))
    return keys


def usual_rows(steps: tuple[int, ...]) -> list[int]:
    """Of decode buckets the smallest, the largest, and those that hold its quarter and its half."""
    buckets = Buckets(steps)
    return [steps[0], *(buckets.holding(-(-steps[-1] // part)) for part in (4, 2, 1))]


def _mean_frames(shape: Shape) -> float:
    """Frames of a usual text, by its words."""
    rows = workloads.load("libritts").rows
    return float(np.mean([forced_frames(len(row.text.split()), shape.frame_s) for row in rows]))


def _silent(what: str, done: int, total: int) -> None:
    """The survey reports split by split."""
