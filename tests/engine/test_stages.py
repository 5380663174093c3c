"""The codes table and the conversions around a model, on one that shows what it was given."""

import numpy as np
import pytest
import torch

from voxserve.engine.lanes import Arrays
from voxserve.engine.stages import Stages
from voxserve.plugin import Inputs, ModelSpec, Outputs, State, StateTensor
from voxserve.scheduler.launches import Stage

SPEC = ModelSpec(
    sample_rate_hz=100,
    samples_per_frame=2,
    codebooks=2,
    columns=((0, 0), (1, 1)),
    frame_buckets=(1, 3),
    ramps=((3,),),
    prompt_columns=1,
    inject_columns=1,
    pad_row=(0,),
    max_context=8,
    prefill_tokens=(4,),
    state=(StateTensor("seen", (), "int64"),),
)
SLOTS, STEPS = 3, 8


class Mirror:
    """Codes are what was injected, audio is what was decoded; `seen` counts the steps of a row."""

    def __init__(self) -> None:
        self.codec_io: Inputs = {}

    def prefill(self, io: Inputs, state: State) -> Outputs:
        if (io["seeds"] < 0).any():
            raise RuntimeError("a bad seed")
        state["seen"][io["slots"]] = 1
        return {"codes": torch.stack([io["seeds"], io["seeds"] + 1], dim=1)}

    def decode(self, io: Inputs, state: State) -> Outputs:
        state["seen"][io["slots"]] += 1
        return {"codes": torch.cat([io["inject"], io["inject"] + 1], dim=1)}

    def codec(self, io: Inputs, state: State) -> Outputs:
        self.codec_io = io
        return {"audio": io["audio_wanted"]}

    def encode(self, io: Inputs, state: State) -> Outputs:
        return {}


@pytest.fixture
def mirror() -> Mirror:
    return Mirror()


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return {"seen": torch.zeros(SLOTS + 1, dtype=torch.int64)}


@pytest.fixture
def stages(mirror: Mirror, state: dict[str, torch.Tensor]) -> Stages:
    return Stages(mirror, SPEC, state, torch.zeros(SLOTS + 1, STEPS, 2, dtype=torch.int16))


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def codec_inputs(steps: list[list[int]], slots: np.ndarray, audio: np.ndarray) -> Arrays:
    return {"slots": slots, "steps": np.array(steps, np.int64), "audio_wanted": audio}


def test_codes_reach_the_codec_by_slot_step_and_column(stages: Stages, mirror: Mirror) -> None:
    stages.run(Stage.PREFILL, {"slots": integers(2, 0), "seeds": integers(10, 20)})
    for step in (1, 2):
        inject = integers(10 + step, 20 + step)[:, None]
        decoded = stages.run(
            Stage.DECODE, {"slots": integers(2, 0), "steps": integers(step, step), "inject": inject}
        )
        assert decoded["codes"].dtype == np.int32
        assert decoded["codes"].tolist() == [[10 + step, 11 + step], [20 + step, 21 + step]]
    audio = np.zeros((2, 4), np.float32)
    stages.run(Stage.CODEC, codec_inputs([[-1, 0, 1], [0, 1, -1]], integers(0, 2), audio))
    # Column 0 is codebook 0 of the step itself, column 1 codebook 1 of the step behind it.
    assert mirror.codec_io["codes"].tolist() == [
        [[0, 0], [20, 22], [21, 23]],
        [[10, 12], [11, 13], [0, 0]],
    ]
    assert mirror.codec_io["valid"].tolist() == [[False, True, True], [True, True, False]]


def test_a_column_behind_the_last_step_stays_inside_the_table(stages: Stages) -> None:
    audio = np.zeros((1, 2), np.float32)
    stages.run(Stage.CODEC, codec_inputs([[STEPS - 1]], integers(0), audio))


def test_pcm_is_rounded_and_held_within_16_bits(stages: Stages) -> None:
    audio = np.array([[0.0, 0.5, 1.0, 2.0, -1.0, -2.0, 0.6 / 32767]], np.float32)
    pcm = stages.run(Stage.CODEC, codec_inputs([[0]], integers(0), audio))["pcm"]
    assert pcm.dtype == np.int16
    assert pcm.tolist() == [[0, 16384, 32767, 32767, -32767, -32768, 1]]


def test_a_step_behind_a_failed_prefill_leaves_the_slot_alone(
    stages: Stages, state: dict[str, torch.Tensor]
) -> None:
    stages.run(Stage.PREFILL, {"slots": integers(0, 1), "seeds": integers(5, 6)})
    with pytest.raises(RuntimeError, match="a bad seed"):
        stages.run(Stage.PREFILL, {"slots": integers(1), "seeds": integers(-1)})
    step = {"slots": integers(0, 1), "steps": integers(1, 1), "inject": integers(7, 8)[:, None]}
    stages.run(Stage.DECODE, step)
    assert state["seen"].tolist() == [2, 1, 0, 1]
    stages.run(Stage.PREFILL, {"slots": integers(1), "seeds": integers(9)})
    stages.run(Stage.DECODE, step)
    assert state["seen"].tolist() == [3, 2, 0, 1]
