"""How many CPU threads an operation gets."""

import os
from pathlib import Path

import pytest
import torch

from tests.engine.harness import engine, prompt
from voxserve.config import EngineConfig
from voxserve.engine.threads import threads_of, usable_cores
from voxserve.plugin import Inputs, Outputs, SpeechModel, State


class Noting:
    """A model whose stages note how many threads they may use."""

    def __init__(self, model: SpeechModel) -> None:
        self._model = model
        self.noted: dict[str, set[int]] = {}

    def prefill(self, io: Inputs, state: State) -> Outputs:
        self._note("prefill")
        return self._model.prefill(io, state)

    def decode(self, io: Inputs, state: State) -> Outputs:
        self._note("decode")
        return self._model.decode(io, state)

    def codec(self, io: Inputs, state: State) -> Outputs:
        self._note("codec")
        return self._model.codec(io, state)

    def encode(self, io: Inputs, state: State) -> Outputs:
        return self._model.encode(io, state)

    def _note(self, stage: str) -> None:
        self.noted.setdefault(stage, set()).add(torch.get_num_threads())


@pytest.mark.parametrize(
    ("cores", "threads"), [(0.5, 1), (2, 1), (7, 1), (8, 2), (15.9, 2), (16, 4), (64, 4)]
)
def test_automatic_threads_follow_the_cores(cores: float, threads: int) -> None:
    assert threads_of(EngineConfig(), "cpu", cores) == threads


def test_threads_do_not_follow_the_cores_on_a_gpu_or_where_bytes_must_not_change() -> None:
    assert threads_of(EngineConfig(), "cuda", 64) == 1
    assert threads_of(EngineConfig(deterministic=True), "cpu", 64) == 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_number_of_threads_is_taken_as_it_is(device: str) -> None:
    for deterministic in (False, True):
        config = EngineConfig(threads=3, deterministic=deterministic)
        assert threads_of(config, device, 1) == 3


def test_a_container_leaves_no_more_cores_than_its_limit(tmp_path: Path) -> None:
    there = len(os.sched_getaffinity(0))
    limit = tmp_path / "cpu.max"
    assert usable_cores(limit) == there
    limit.write_text("max 100000\n")
    assert usable_cores(limit) == there
    limit.write_text("50000 100000\n")
    assert usable_cores(limit) == 0.5
    limit.write_text(f"{(there + 1) * 100_000} 100000\n")
    assert usable_cores(limit) == there


@pytest.mark.parametrize("threads", [2, 3])
def test_every_stage_runs_with_as_many(threads: int) -> None:
    models: list[Noting] = []

    def wrap(model: SpeechModel) -> SpeechModel:
        models.append(Noting(model))
        return models[0]

    with engine({"engine": {"threads": threads}}, wrap=wrap) as (api, _):
        api.say(prompt(steps=12))
    assert models[0].noted == {stage: {threads} for stage in ("prefill", "decode", "codec")}
