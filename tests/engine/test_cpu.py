"""The CPU lanes against the lane contract, on stages that the test can hold up."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from voxserve.engine.cpu import CpuBackend
from voxserve.engine.lanes import Key, LaneDone
from voxserve.engine.stages import Stages
from voxserve.plugin import Inputs, ModelSpec, Outputs, State
from voxserve.scheduler.launches import Lane, Launch, Stage

WAIT_S = 10.0
SPEC = ModelSpec(
    sample_rate_hz=100,
    samples_per_frame=1,
    codebooks=1,
    columns=((0, 0),),
    frame_buckets=(1, 4),
    ramps=((1,),),
    prompt_columns=1,
    inject_columns=1,
    pad_row=(0,),
    max_context=8,
    prefill_tokens=(4,),
    state=(),
)
KEYS = [
    Key(Stage.DECODE, 2, 0, "lm"),
    Key(Stage.CODEC, 2, 4, "codec"),
    Key(Stage.CODEC, 2, 4, "whole"),
]


class Held:
    """Decode waits for `gate`, the codec for a partner on another lane."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.meeting = threading.Barrier(2)
        self.codec_shapes: list[tuple[int, ...]] = []

    def prefill(self, io: Inputs, state: State) -> Outputs:
        raise AssertionError("never called here")

    def decode(self, io: Inputs, state: State) -> Outputs:
        assert self.gate.wait(WAIT_S)
        if (io["inject"] < 0).any():
            raise RuntimeError("a bad row")
        return {"codes": io["inject"]}

    def codec(self, io: Inputs, state: State) -> Outputs:
        self.codec_shapes.append(tuple(io["codes"].shape))
        if (io["lengths"] == 4).all():
            self.meeting.wait(WAIT_S)
        return {"audio": torch.zeros(len(io["slots"]), io["codes"].shape[1])}

    def encode(self, io: Inputs, state: State) -> Outputs:
        raise AssertionError("never called here")


class Woken:
    """Counts the wake calls and waits for them."""

    def __init__(self) -> None:
        self._calls = threading.Semaphore(0)

    def __call__(self) -> None:
        self._calls.release()

    def wait(self) -> None:
        assert self._calls.acquire(timeout=WAIT_S)


@pytest.fixture
def model() -> Held:
    return Held()


@pytest.fixture
def woken() -> Woken:
    return Woken()


def backend_of(model: Held, woken: Woken, *, deterministic: bool = False) -> CpuBackend:
    stages = Stages(model, SPEC, {}, torch.zeros(4, 8, 1, dtype=torch.int16))
    backend = CpuBackend(stages, SPEC, KEYS, deterministic=deterministic)
    backend.on_done(woken)
    return backend


@pytest.fixture
def backend(model: Held, woken: Woken) -> Iterator[CpuBackend]:
    backend = backend_of(model, woken)
    yield backend
    model.gate.set()
    backend.close()


def start(backend: CpuBackend, number: int, inject: np.ndarray) -> None:
    slots = np.array([0, 1], np.int32)
    launch = Launch(number, Lane.LM, Stage.DECODE, 2, 0, slots, slots, steps=slots)
    inputs = {"slots": slots.astype(np.int64), "steps": np.zeros(2, np.int64), "inject": inject}
    backend.lanes[Lane.LM].launch(launch, backend.executable(launch), inputs)


def start_codec(backend: CpuBackend, lane: Lane, lengths: list[int]) -> None:
    slots = np.arange(len(lengths), dtype=np.int32)
    launch = Launch(0, lane, Stage.CODEC, 2, 4, slots, slots)
    inputs = {
        "slots": slots.astype(np.int64),
        "steps": np.zeros((len(slots), 4), np.int64),
        "lengths": np.array(lengths, np.int64),
    }
    backend.lanes[lane].launch(launch, backend.executable(launch), inputs)


def poll(backend: CpuBackend, lane: Lane) -> LaneDone:
    done = backend.lanes[lane].poll()
    assert done is not None
    return done


def test_launches_come_back_in_order_and_poll_never_waits(
    backend: CpuBackend, model: Held, woken: Woken
) -> None:
    inject = np.array([[1], [2]], np.int64)
    start(backend, 0, inject)
    inject[:] = 3  # the lane has its own copy
    start(backend, 1, inject)
    assert backend.lanes[Lane.LM].poll() is None
    model.gate.set()
    woken.wait()
    woken.wait()
    first, second = poll(backend, Lane.LM), poll(backend, Lane.LM)
    assert (first.launch.number, second.launch.number) == (0, 1)
    assert first.outputs["codes"].tolist() == [[1], [2]]
    assert second.outputs["codes"].tolist() == [[3], [3]]
    assert first.begin_s <= first.end_s <= second.begin_s <= second.end_s
    assert backend.lanes[Lane.LM].poll() is None


def test_a_failure_voids_one_launch_and_the_lane_goes_on(
    backend: CpuBackend, model: Held, woken: Woken
) -> None:
    model.gate.set()
    start(backend, 0, np.array([[1], [-1]], np.int64))
    start(backend, 1, np.array([[1], [2]], np.int64))
    woken.wait()
    woken.wait()
    assert "a bad row" in str(poll(backend, Lane.LM).error)
    assert poll(backend, Lane.LM).error is None


def test_lanes_run_at_the_same_time(backend: CpuBackend, woken: Woken) -> None:
    start(backend, 0, np.array([[1], [2]], np.int64))  # holds the LM lane all the while
    start_codec(backend, Lane.BACKGROUND, [4, 4])
    start_codec(backend, Lane.URGENT, [4])
    woken.wait()
    woken.wait()
    assert poll(backend, Lane.BACKGROUND).error is None
    assert poll(backend, Lane.URGENT).error is None
    assert backend.lanes[Lane.LM].poll() is None


def test_an_executable_that_was_never_built_is_an_error(backend: CpuBackend) -> None:
    slots = np.array([0], np.int32)
    with pytest.raises(KeyError):
        backend.executable(Launch(0, Lane.LM, Stage.DECODE, 4, 0, slots, slots))


def test_deterministic_rows_run_alone_in_their_own_bucket(model: Held, woken: Woken) -> None:
    backend = backend_of(model, woken, deterministic=True)
    start_codec(backend, Lane.BACKGROUND, [1, 3])
    model.meeting.abort()
    woken.wait()
    done = poll(backend, Lane.BACKGROUND)
    backend.close()
    assert done.error is None
    assert model.codec_shapes == [(1, 1, 1), (1, 4, 1)]
    assert done.outputs["pcm"].shape == (2, 4)
