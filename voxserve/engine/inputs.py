"""A launch's inputs as host arrays: what `SpeechModel` lists, for the launch's own rows."""

from collections.abc import Mapping

import numpy as np

from voxserve.engine.intake import Request
from voxserve.engine.lanes import Arrays
from voxserve.engine.memory import Sizes
from voxserve.engine.slots import Slots
from voxserve.plugin import ModelSpec, StepLogic
from voxserve.scheduler.launches import Launch, Stage


class Inputs:
    """Builds the inputs of each stage from the requests and the slots' arrays."""

    def __init__(
        self,
        spec: ModelSpec,
        sizes: Sizes,
        slots: Slots,
        logic: StepLogic,
        requests: Mapping[int, Request],
    ) -> None:
        self._spec = spec
        self._sizes = sizes
        self._slots = slots
        self._logic = logic
        self._requests = requests

    def build(self, launch: Launch) -> Arrays:
        """All arrays have one row per row of the launch. Raises what the step logic raises."""
        if launch.stage is Stage.DECODE:
            assert launch.steps is not None
            return {
                "slots": launch.slots.astype(np.int64),
                "steps": launch.steps.astype(np.int64),
                "inject": self._slots.decode_rows(launch),
            }
        if launch.stage is Stage.CODEC:
            return self._codec(launch)
        requests = [self._requests[number] for number in launch.requests.tolist()]
        return (
            self._prefill(launch, requests)
            if launch.stage is Stage.PREFILL
            else self._encode(launch, requests)
        )

    def _codec(self, launch: Launch) -> Arrays:
        assert launch.first_frame is not None and launch.frames is not None
        assert launch.last is not None
        spec, steps_of = self._spec, self._logic.chunk_steps
        length = spec.left_frames + launch.units + spec.ahead_frames
        steps = np.empty((len(launch.slots), length), np.int64)
        firsts = launch.first_frame.tolist()
        for row, (slot, first) in enumerate(zip(launch.slots.tolist(), firsts, strict=True)):
            steps[row] = steps_of(slot, first - spec.left_frames, length)
        return {
            "slots": launch.slots.astype(np.int64),
            "steps": steps,
            "lengths": launch.frames.astype(np.int64),
            "first_frame": launch.first_frame.astype(np.int64),
            "fresh": launch.first_frame == 0,
            "last": launch.last,
        }

    def _prefill(self, launch: Launch, requests: list[Request]) -> Arrays:
        spec, sizes = self._spec, self._sizes
        rows = np.zeros((len(requests), launch.units, spec.prompt_columns), np.int64)
        for row, request in enumerate(requests):
            rows[row, : len(request.prompt.rows)] = request.prompt.rows
        prompts = [request.prompt for request in requests]
        clips = [sizes.clips if r.clip is None else r.clip.row for r in requests]
        inputs: dict[str, np.ndarray] = {
            "slots": launch.slots.astype(np.int64),
            "lengths": np.array([len(prompt.rows) for prompt in prompts], np.int64),
            "rows": rows,
            "sampling": np.array([prompt.sampling for prompt in prompts], np.float32),
            "seeds": np.array([prompt.seed for prompt in prompts], np.int64),
            "ignore_eos": np.array([prompt.ignore_eos for prompt in prompts], np.bool_),
            "clips": np.array(clips, np.int64),
        }
        for pool, entries in sizes.table_pages.items():
            of_clips = [r.clip.pages if r.clip else {} for r in requests]
            pages = [
                [*of_clip.get(pool, ()), *r.pages[pool]]
                for of_clip, r in zip(of_clips, requests, strict=True)
            ]
            inputs[f"pages_{pool}"] = self._table(pool, entries, pages)
        return inputs

    def _encode(self, launch: Launch, requests: list[Request]) -> Arrays:
        samples = launch.units * (self._spec.clip_rate_hz or 0)
        audio = np.zeros((len(requests), samples), np.float32)
        lengths = np.zeros(len(requests), np.int64)
        clips = []
        for row, request in enumerate(requests):
            assert request.prompt.clip is not None and request.clip is not None
            clips.append(request.clip)
            lengths[row] = len(request.prompt.clip.audio)
            audio[row, : lengths[row]] = request.prompt.clip.audio
        inputs: dict[str, np.ndarray] = {
            "clips": np.array([clip.row for clip in clips], np.int64),
            "audio": audio,
            "lengths": lengths,
        }
        for pool, entries in self._sizes.clip_table_pages.items():
            pages = [clip.pages[pool] for clip in clips]
            inputs[f"pages_{pool}"] = self._table(pool, entries, pages)
        return inputs

    def _table(self, pool: str, entries: int, pages: list[list[int]]) -> np.ndarray:
        """[rows, entries] int64, filled up with the pool's spare page."""
        table = np.full((len(pages), entries), self._sizes.spare_pages[pool], np.int64)
        for row, held in enumerate(pages):
            table[row, : len(held)] = held
        return table
