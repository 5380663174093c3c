"""A real engine loop in a thread of this process, and the API's end of its socket."""

import dataclasses
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from voxserve.checkpoints import find
from voxserve.config import Config, load_config
from voxserve.engine.channel import Channel, ChannelClosed
from voxserve.engine.loop import Loop
from voxserve.engine.start import assemble
from voxserve.plugin import HostLogic, SpeechModel, Target
from voxserve.requests import Prompt, SpeechRequest
from voxserve.wire import (
    Cancelled,
    Failed,
    Finished,
    Frames,
    FromEngine,
    PcmChunk,
    Ready,
    Started,
    Stats,
    Submit,
    ToEngine,
    Warming,
    decode_from_engine,
    encode,
    pack_clip,
    pack_prompt,
)

PATIENCE_S = 60.0
"""Longest wait for anything; far beyond what a healthy engine takes."""


@dataclass
class Heard:
    """All that the engine said about one request."""

    started: int = 0
    chunks: list[PcmChunk] = field(default_factory=list)
    end: Finished | Failed | Cancelled | None = None

    @property
    def pcm(self) -> bytes:
        return b"".join(chunk.pcm for chunk in self.chunks)

    def hear(self, message: Started | PcmChunk | Finished | Failed | Cancelled) -> None:
        assert self.end is None, f"{message} came after {self.end}"
        if isinstance(message, Started):
            self.started += 1
        elif isinstance(message, PcmChunk):
            assert message.index == len(self.chunks)
            assert not (self.chunks and self.chunks[-1].last)
            self.chunks.append(message)
        else:
            self.end = message


class Api:
    """The other end of the socket: sends messages, sorts what comes back by request."""

    def __init__(self, connection: socket.socket, host: HostLogic) -> None:
        self.host = host
        self.heard: dict[int, Heard] = {}
        self.stats: list[Stats] = []
        self.warming: list[Warming] = []
        self.ready: Ready | None = None
        self._socket = connection
        self._socket.settimeout(PATIENCE_S)
        self._frames = Frames()

    def send(self, *messages: ToEngine) -> None:
        self._socket.sendall(b"".join(encode(message) for message in messages))

    def expect(self, number: int) -> None:
        """Keep what comes for a request that was submitted past this class."""
        self.heard[number] = Heard()

    def submit(self, number: int, prompt: Prompt, **how: Any) -> None:
        self.expect(number)
        how.setdefault("ttfa_s", 5.0)
        if prompt.clip is not None:
            self.send(pack_clip(prompt.clip))
        self.send(Submit(number, time.monotonic(), pack_prompt(prompt), **how))

    def close(self) -> None:
        self._socket.close()

    def read(self) -> None:
        """Wait for bytes and sort the messages in them."""
        self._take(self._socket.recv(1 << 20))

    def read_ready(self) -> None:
        """The same without waiting, for all that is there."""
        while select.select([self._socket], [], [], 0)[0]:
            self.read()

    def _take(self, data: bytes) -> None:
        assert data, "the engine closed the socket"
        for body in self._frames.feed(data):
            self._sort(decode_from_engine(body))

    def until(self, happened: Callable[[], object]) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not happened():
            assert time.monotonic() < give_up, "the engine goes on but this never happens"
            self.read()

    def finish(self, *numbers: int) -> list[Heard]:
        """Read until these requests are over."""
        wanted = [self.heard[number] for number in numbers or self.heard]
        self.until(lambda: all(heard.end for heard in wanted))
        return wanted

    def say(self, *prompts: Prompt, **how: Any) -> list[Heard]:
        """Submit all at once and wait for their ends."""
        first = max(self.heard, default=0) + 1
        for number, prompt in enumerate(prompts, first):
            self.submit(number, prompt, **how)
        return self.finish(*range(first, first + len(prompts)))

    def settle(self) -> Stats:
        """Wait for a whole heartbeat from now on."""
        self.read_ready()
        have = len(self.stats)
        self.until(lambda: len(self.stats) > have + 1)
        return self.stats[-1]

    def _sort(self, message: FromEngine) -> None:
        if isinstance(message, Stats):
            self.stats.append(message)
        elif isinstance(message, Warming):
            self.warming.append(message)
        elif isinstance(message, Ready):
            self.ready = message
        elif isinstance(message, Started | PcmChunk | Finished | Failed | Cancelled):
            self.heard[message.request].hear(message)


@cache
def tiny(dtype: str = "float32", device: str = "cpu") -> tuple[HostLogic, SpeechModel]:
    """Both halves, with the same random weights on every device."""
    torch.set_num_threads(1)
    plugin, checkpoint = find("tiny", dummy=False)
    model = plugin.load(checkpoint, Target(device, dtype))
    if device != "cpu":  # each kind of device has a generator of its own
        _, same = tiny(dtype)
        assert isinstance(model, torch.nn.Module) and isinstance(same, torch.nn.Module)
        model.load_state_dict(same.state_dict())
    return plugin.host(checkpoint), model


def prompt(
    text: str = "Hello there.", *, seed: int = 1, steps: int | None = None, **how: Any
) -> Prompt:
    """A prompt of tiny. steps: exactly so many LM steps."""
    host, _ = tiny()
    made = host.prompt(SpeechRequest(text=text, seed=seed, **how))
    if steps is not None:
        made = dataclasses.replace(made, max_steps=steps, ignore_eos=True)
    return made


@contextmanager
def engine(
    settings: dict[str, Any] | None = None,
    *,
    wrap: Callable[[SpeechModel], SpeechModel] | None = None,
    padded: bool = False,
) -> Iterator[tuple[Api, Loop]]:
    """A warm engine of tiny that runs until the block ends."""
    config = settings_of(settings or {})
    dtype = "float32" if config.engine.dtype == "auto" else config.engine.dtype
    host, model = tiny(dtype, config.engine.device)
    with serving(config, host, wrap(model) if wrap else model, padded=padded) as running:
        yield running


@contextmanager
def serving(
    config: Config, host: HostLogic, model: SpeechModel, *, padded: bool = False
) -> Iterator[tuple[Api, Loop]]:
    """A warm engine of any model that runs until the block ends."""
    failures: list[BaseException] = []
    with assembled(config, model, host=host, padded=padded) as (loop, ours):
        thread = threading.Thread(target=_serve, args=(loop, failures), name="engine")
        thread.start()
        try:
            yield Api(ours, host), loop
        finally:
            ours.close()
            thread.join(PATIENCE_S)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


@contextmanager
def assembled(
    config: Config, model: SpeechModel, *, host: HostLogic | None = None, padded: bool = False
) -> Iterator[tuple[Loop, socket.socket]]:
    """A warm loop that nobody turns yet, and the API's end of its socket. host: of tiny unless
    given."""
    ours, theirs = socket.socketpair()
    logic = host or tiny()[0]
    with ours, theirs:
        yield assemble(config, logic, model, Channel(theirs), _quiet, padded=padded), ours


def settings_of(settings: dict[str, Any]) -> Config:
    """Small buckets, so that the warm-up is short, and no refusals unless asked for."""
    policy = {"refuse": False, "urgent_rows": 4, "background_rows": 4, "background_batch": 4}
    base = {
        "model": "tiny",
        "engine": {"device": "cpu", "slots": 4, "clips": 2, **settings.get("engine", {})},
        "policy": {**policy, "prefill_rows": 4, **settings.get("policy", {})},
    }
    return load_config(None, base)


def same_but_for_rounding(ours: bytes, theirs: bytes) -> bool:
    """Whether two PCM streams differ by 1 LSB at most."""
    pair: Sequence[torch.Tensor] = [
        torch.frombuffer(bytearray(pcm), dtype=torch.int16).int() for pcm in (ours, theirs)
    ]
    return len(pair[0]) == len(pair[1]) and bool(((pair[0] - pair[1]).abs() <= 1).all())


def _serve(loop: Loop, failures: list[BaseException]) -> None:
    try:
        loop.serve()
    except ChannelClosed:
        pass
    except BaseException as error:
        failures.append(error)
    finally:
        loop.close()


def _quiet(what: str, done: int, total: int) -> None:
    assert 0 <= done <= total
