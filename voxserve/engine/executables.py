"""Which executables there are: every stage at every bucket and partition, and their blank inputs.

Nothing here knows torch: the CPU backend runs these as plain calls, a GPU backend captures them.
"""

from collections import Counter
from dataclasses import replace

import numpy as np

from voxserve.engine.lanes import Arrays, Key
from voxserve.engine.memory import Sizes
from voxserve.plugin import ModelSpec
from voxserve.scheduler.launches import Lane, Launch, Stage
from voxserve.scheduler.policy import Policy, Shape

TILE_ROWS = 64
"""From here on all decode buckets are multiples of this, the rows of a tile in the LM's maps; from
WIDE_FROM on only every second."""
WIDE_FROM = 512


def ladder(most: int) -> tuple[int, ...]:
    """Powers of two from 1 up to the first that is at least `most`."""
    return tuple(1 << power for power in range((most - 1).bit_length() + 1))


def step_ladder(most: int) -> tuple[int, ...]:
    """Powers of two up to 64, then every 64 rows to 512, then every 128, up to the first that is at
    least `most`: a step takes the longer the more rows its bucket has.

    Only decode steps have so many: each is a graph to capture at the start, and kernels to compile
    where no other bucket has the same tiles.
    """
    rows = list(ladder(min(most, TILE_ROWS)))
    while rows[-1] < most:
        rows.append(rows[-1] + (TILE_ROWS if rows[-1] < WIDE_FROM else 2 * TILE_ROWS))
    return tuple(rows)


def engine_policy(policy: Policy, *, deterministic: bool) -> Policy:
    """The policy in force: deterministic audio needs chunk cuts that no load changes."""
    return replace(policy, ramp=0) if deterministic and policy.ramp == "load" else policy


def shape_of(
    spec: ModelSpec,
    policy: Policy,
    slots: int,
    pages: tuple[int, ...],
    clips: int = 0,
    clip_pages: tuple[int, ...] = (),
) -> Shape:
    """What the scheduler sizes its plans by."""
    return Shape(
        slots=slots,
        pages=pages,
        frame_s=spec.frame_s,
        sample_rate_hz=spec.sample_rate_hz,
        frame_buckets=spec.frame_buckets,
        ramps=spec.ramps,
        padded_chunks=spec.padded_chunks,
        ahead_frames=spec.ahead_frames,
        prefill_tokens=spec.prefill_tokens,
        decode_rows=step_ladder(slots),
        prefill_rows=ladder(min(policy.prefill_rows, slots)),
        codec_rows=ladder(min(max(policy.urgent_rows, policy.background_rows), slots)),
        encode_seconds=spec.encode_seconds,
        steps_per_frame=max(Counter(book for _, book in spec.columns).values()),
        clips=clips,
        clip_pages=clip_pages,
    )


def partition_of(lane: Lane, stage: Stage) -> str:
    """The SM set that a launch runs on; a CPU has one for all."""
    if stage is Stage.DECODE:
        return "lm"
    return "codec" if lane is Lane.BACKGROUND else "whole"


def key_of(launch: Launch) -> Key:
    return Key(launch.stage, launch.rows, launch.units, partition_of(launch.lane, launch.stage))


def keys_of(shape: Shape) -> list[Key]:
    """Every executable that a plan over `shape` can ask for, small buckets first."""
    keys = [Key(Stage.ENCODE, 1, seconds, "whole") for seconds in shape.encode_seconds]
    keys += [
        Key(Stage.PREFILL, r, u, "whole") for r in shape.prefill_rows for u in shape.prefill_tokens
    ]
    keys += [Key(Stage.DECODE, r, 0, "lm") for r in shape.decode_rows]
    keys += [
        Key(Stage.CODEC, rows, frames, partition)
        for partition in ("whole", "codec")
        for rows in shape.codec_rows
        for frames in shape.frame_buckets
    ]
    return keys


class Padding:
    """Fills a batch up to its bucket with rows that change nothing that anyone reads.

    A padding row repeats the batch's first row, so every value in it is one that the model can
    compute, but names the spare slot, clip and pages.
    """

    def __init__(self, slots: int, clips: int, spare_pages: dict[str, int]) -> None:
        pages = {f"pages_{name}": page for name, page in spare_pages.items()}
        self._spare = {"slots": slots, "clips": clips} | pages

    def pad(self, inputs: Arrays, rows: int) -> Arrays:
        """`inputs` with `rows` rows; the same arrays when there are as many already."""
        have = len(next(iter(inputs.values())))
        if have == rows:
            return inputs
        padded = {}
        for name, array in inputs.items():
            more = np.repeat(array[:1], rows - have, axis=0)
            if name in self._spare:
                more.fill(self._spare[name])
            padded[name] = np.concatenate([array, more])
        return padded

    def blank(self, key: Key, spec: ModelSpec, sizes: Sizes) -> Arrays:
        """Inputs of `key`'s shape that name only spare rows; for the warm-up."""
        one = np.ones(1, np.int64)
        spare = {name: np.array([number], np.int64) for name, number in self._spare.items()}
        inputs: dict[str, np.ndarray]
        if key.stage is Stage.ENCODE:
            samples = key.units * (spec.clip_rate_hz or 0)
            inputs = {
                "clips": spare["clips"],
                "audio": np.zeros((1, samples), np.float32),
                "lengths": one * samples,
                **self._tables(sizes.clip_table_pages),
            }
        elif key.stage is Stage.PREFILL:
            inputs = {
                "slots": spare["slots"],
                "lengths": one * key.units,
                "rows": np.zeros((1, key.units, spec.prompt_columns), np.int64),
                "sampling": np.ones((1, len(spec.sampling)), np.float32),
                "seeds": 0 * one,
                "ignore_eos": np.zeros(1, np.bool_),
                "clips": spare["clips"],
                **self._tables(sizes.table_pages),
            }
        elif key.stage is Stage.DECODE:
            inject = np.array([spec.pad_row], np.int64)
            inputs = {"slots": spare["slots"], "steps": one, "inject": inject}
        else:
            length = spec.left_frames + key.units + spec.ahead_frames
            inputs = {
                "slots": spare["slots"],
                "steps": np.zeros((1, length), np.int64),
                "lengths": one * key.units,
                "first_frame": 0 * one,
                "fresh": np.ones(1, np.bool_),
                "last": np.zeros(1, np.bool_),
            }
        return self.pad(inputs, key.rows)

    def _tables(self, entries: dict[str, int]) -> Arrays:
        """Page tables of one row that name the spare page only. entries: their widths, by pool."""
        names = {pool: f"pages_{pool}" for pool in entries}
        return {
            name: np.full((1, entries[pool]), self._spare[name], np.int64)
            for pool, name in names.items()
        }
