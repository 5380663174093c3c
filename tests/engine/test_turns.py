"""Turns of the loop by hand: what it does when nobody reads, nothing runs, or a lane hangs."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.engine.harness import PATIENCE_S, Api, assembled, prompt, settings_of, tiny
from voxserve.engine.loop import Loop
from voxserve.plugin import Inputs, Outputs, SpeechModel, State
from voxserve.wire import Finished, Submit, encode, pack_prompt


class Gated:
    """Tiny, whose decode waits for `gate`."""

    def __init__(self, model: SpeechModel) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.decoded = threading.Semaphore(0)
        self._model = model

    def prefill(self, io: Inputs, state: State) -> Outputs:
        return self._model.prefill(io, state)

    def decode(self, io: Inputs, state: State) -> Outputs:
        assert self.gate.wait(PATIENCE_S)
        self.decoded.release()
        return self._model.decode(io, state)

    def codec(self, io: Inputs, state: State) -> Outputs:
        return self._model.codec(io, state)

    def encode(self, io: Inputs, state: State) -> Outputs:
        return self._model.encode(io, state)


@pytest.fixture
def model() -> Gated:
    return Gated(tiny()[1])


@pytest.fixture
def parts(model: Gated) -> Iterator[tuple[Loop, socket.socket]]:
    with assembled(settings_of({}), model) as (loop, ours):
        try:
            yield loop, ours
        finally:
            model.gate.set()
            loop.close()


def submit(number: int, steps: int) -> bytes:
    made = pack_prompt(prompt(seed=number, steps=steps))
    return encode(Submit(number, time.monotonic(), made, ttfa_s=None, window_s=1000.0))


def test_an_api_process_that_does_not_read_holds_up_no_launch(
    parts: tuple[Loop, socket.socket],
) -> None:
    loop, ours = parts
    numbers = range(1, 9)
    ours.sendall(b"".join(submit(number, 40) for number in numbers))
    while not loop.requests:
        loop.turn()
    while loop.requests:
        loop.turn()
    api = Api(ours, tiny()[0])
    for number in numbers:
        api.expect(number)
    while any(api.heard[number].end is None for number in numbers):
        loop.turn()  # writes what the socket takes; there is nothing else to do any more
        api.read_ready()
    assert all(isinstance(api.heard[number].end, Finished) for number in numbers)
    assert {len(api.heard[number].pcm) for number in numbers} == {40 * 1920 * 2}


def test_the_next_step_is_queued_before_the_host_has_read_the_last(
    parts: tuple[Loop, socket.socket], model: Gated
) -> None:
    loop, ours = parts
    while model.decoded.acquire(blocking=False):
        pass  # the warm-up's
    model.gate.clear()
    ours.sendall(submit(1, 20))
    while not (loop.requests and loop.slots.steps[loop.requests[1].slot]):
        loop.turn()  # until the prefill was read, with a decode step held up behind it
    loop.turn()
    model.gate.set()
    # No turn happens from here on, so the lane can only run what it was given before.
    assert all(model.decoded.acquire(timeout=PATIENCE_S) for _ in range(2))


def test_an_idle_turn_sleeps(parts: tuple[Loop, socket.socket]) -> None:
    loop, _ = parts
    loop.turn()
    began, spent = time.monotonic(), time.thread_time()
    loop.turn()
    assert time.monotonic() - began > 0.5
    assert time.thread_time() - spent < 0.1


def test_heartbeats_go_on_and_tell_the_age_of_a_launch_that_hangs(
    parts: tuple[Loop, socket.socket], model: Gated
) -> None:
    loop, ours = parts
    api = Api(ours, tiny()[0])
    model.gate.clear()
    ours.sendall(submit(1, 20))
    api.expect(1)
    began = time.monotonic()
    while not (api.stats and api.stats[-1].step_age_s > 1.0):
        assert time.monotonic() - began < PATIENCE_S
        loop.turn()
        api.read_ready()
    assert api.stats[-1].step_age_s <= time.monotonic() - began
    assert len(api.stats) >= 2
    model.gate.set()
    while loop.requests:
        loop.turn()
        api.read_ready()
    assert isinstance(api.heard[1].end, Finished)
