"""Which way of sharing a device carries the most requests, from the times of each."""

from collections.abc import Sequence

from voxserve.bench.profile_file import Candidate, Choice, Split, Timing
from voxserve.errors import InvalidRequestError
from voxserve.scheduler.launches import Lane, Stage
from voxserve.scheduler.policy import Shape

TIME_SHARING = "time sharing"
REAL_TIME_SHARE = 0.8
"""A decode step may take this share of the audio that it makes; the rest is for everything else."""
_SHARE_EVERYTHING = {"engine.codec_sms": 0, "policy.overlap": False}


def choose(
    splits: Sequence[Split], shape: Shape, frames: float, gap_s: float, target: float | None
) -> Choice:
    """The candidate whose LM carries most while its codec keeps up with `target`.

    splits: among them 0, which sets no SMs apart and tells what each side does with all of them;
    its timings hold the prefill's. frames: of a usual request. gap_s: what the host adds to each
    launch when nothing else runs meanwhile. target: requests a second; None stands for whatever the
    LM carries, so that the candidate wins whose slower side is the fastest.
    """
    whole = next((split for split in splits if not split.codec_sms), None)
    if whole is None:
        raise InvalidRequestError("among the splits must be 0, which sets nothing apart")
    lm_s, codec_s = lm_seconds(whole, shape, frames), codec_seconds(whole, shape, frames)
    prefill_s = _prefill_s(whole)
    candidates = [_partitioned(split, shape, frames, prefill_s) for split in splits]
    launches_lm = frames * shape.steps_per_frame / _best_rows(whole, shape)
    launches_codec = frames / shape.frame_buckets[-1] / whole.of(*_CODEC)[-1].rows
    # Every launch waits for the host, since nothing runs beside it.
    lm_shared_s = lm_s + prefill_s + gap_s * launches_lm
    codec_shared_s = codec_s + gap_s * launches_codec
    candidates.append(
        Candidate(
            TIME_SHARING,
            dict(_SHARE_EVERYTHING),
            lm_rate=(1 - (target or 0.0) * codec_shared_s) / lm_shared_s,
            codec_rate=1 / codec_shared_s,
            capacity=1 / (lm_shared_s + codec_shared_s),
        )
    )
    able = [one for one in candidates if target is not None and one.codec_rate >= target]
    best = max(able, key=lambda one: one.lm_rate) if able else max(candidates, key=_capacity)
    return Choice(
        candidates,
        best.name,
        target,
        frames,
        lm_alone=1 / (lm_s + prefill_s),
        codec_alone=1 / codec_s,
    )


def lm_seconds(split: Split, shape: Shape, frames: float, beside: Lane | None = None) -> float:
    """LM time of a request without its prefill, in steps of the most rows that keep real time."""
    steps = frames * shape.steps_per_frame
    return min(_seconds(t, beside) / t.rows for t in _real_time(split, shape)) * steps


def codec_seconds(split: Split, shape: Shape, frames: float, beside: Lane | None = None) -> float:
    """Codec time of a request, in the largest batches of the largest chunks."""
    timing = split.of(*_CODEC)[-1]
    return _seconds(timing, beside) / timing.rows * frames / shape.frame_buckets[-1]


_CODEC = (Lane.BACKGROUND, Stage.CODEC)


def _partitioned(split: Split, shape: Shape, frames: float, prefill_s: float) -> Candidate:
    """Both sides busy at once. Prefills run on the LM's lane, on all SMs."""
    lm_rate = 1 / (lm_seconds(split, shape, frames, Lane.BACKGROUND) + prefill_s)
    codec_rate = 1 / codec_seconds(split, shape, frames, Lane.LM)
    settings = {"engine.codec_sms": split.codec_sms}
    return Candidate(split.name, settings, lm_rate, codec_rate, min(lm_rate, codec_rate))


def _capacity(candidate: Candidate) -> float:
    return candidate.capacity


def _prefill_s(split: Split) -> float:
    """Prefill time of a request, in the largest batches."""
    timings = split.of(Lane.LM, Stage.PREFILL)
    return timings[-1].alone_s / timings[-1].rows if timings else 0.0


def _best_rows(split: Split, shape: Shape) -> int:
    return min(_real_time(split, shape), key=lambda t: t.alone_s / t.rows).rows


def _real_time(split: Split, shape: Shape) -> list[Timing]:
    """Decode steps that are quicker than the audio they make, or else the quickest."""
    limit_s = REAL_TIME_SHARE * shape.frame_s / shape.steps_per_frame
    steps = split.of(Lane.LM, Stage.DECODE)
    return [t for t in steps if t.alone_s <= limit_s] or steps[:1]


def _seconds(timing: Timing, beside: Lane | None) -> float:
    return timing.alone_s if beside is None else timing.beside_s[beside.name]
