"""The real engine speaks Qwen3-TTS: a clone, a speaker vector and live text at once."""

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from tests.engine.harness import Api, serving, settings_of
from tests.parity.qwen3_tts.checkpoint import speech_like
from tests.parity.qwen3_tts.rig import host, model, rig_for
from voxserve.models.qwen3_tts.host import Qwen3Host
from voxserve.requests import Prompt, ReferenceClip, SpeechRequest
from voxserve.wire import AppendText, Finished

BASE = "base-1b7"
CLIP = ReferenceClip("one", speech_like(1.5), "The quick brown fox.")
OTHER = ReferenceClip("two", speech_like(2.5), "Another one.")
GREEDY = SpeechRequest(
    text="Hello there! The news.",
    clip=CLIP,
    temperature=0.0,
    max_frames=12,
    extra={"subtalker_temperature": 0.0},
)


@contextmanager
def engine() -> Iterator[tuple[Api, Qwen3Host]]:
    """A warm engine of the small Base model, with few buckets."""
    torch.set_num_threads(1)
    small = copy.copy(host(BASE))
    small.spec = dataclasses.replace(small.spec, encode_seconds=(5,), prefill_tokens=(64,))
    config = settings_of({"engine": {"slots": 3, "clips": 2, "context": 256}})
    with serving(config, small, model(BASE)) as (api, _):
        yield api, small


def expected(prompt: Prompt) -> np.ndarray:
    """PCM of a prompt that is alone, one stage after the other."""
    rig = rig_for(BASE)
    (codes,) = rig.speak([prompt])
    audio = rig.sound(rig.slots - 1, codes, [len(codes)])
    return (audio * 32767).round().clamp(-32768, 32767).short().numpy()


def assert_heard(pcm: bytes, prompt: Prompt) -> None:
    heard, wanted = np.frombuffer(pcm, np.int16), expected(prompt)
    assert len(heard) == len(wanted)
    assert np.abs(heard.astype(int) - wanted).max() <= 1


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Api, Qwen3Host]]:
    with engine() as started:
        yield started


def prompts_of(made: Qwen3Host, requests: Sequence[SpeechRequest]) -> list[Prompt]:
    return [made.prompt(request) for request in requests]


def test_clones_side_by_side(running: tuple[Api, Qwen3Host]) -> None:
    """Two clips, one of them used twice, in more requests than there are slots."""
    api, made = running
    prompts = prompts_of(
        made,
        [
            GREEDY,
            dataclasses.replace(GREEDY, speaker_only=True),
            dataclasses.replace(GREEDY, clip=OTHER, text="Other words here."),
            dataclasses.replace(GREEDY, clip=OTHER, max_frames=3),
        ],
    )
    for heard, prompt in zip(api.say(*prompts), prompts, strict=True):
        assert isinstance(heard.end, Finished)
        assert_heard(heard.pcm, prompt)


def test_live_text_waits_and_goes_on(running: tuple[Api, Qwen3Host]) -> None:
    """Pieces that come after the engine has run out of text make no difference."""
    api, made = running
    request = dataclasses.replace(GREEDY, text="", speaker_only=True)
    live = made.live_text(request)
    rows = live.append("Hello ")
    number = max(api.heard, default=0) + 1
    api.submit(number, live.prompt(rows, ended=False))
    api.until(lambda: api.heard[number].started)
    for piece in ("the", "re! Th", "e news."):
        rows = live.append(piece)
        if len(rows):
            api.send(AppendText(number, rows.tobytes()))
        api.settle()
    api.send(AppendText(number, live.end().tobytes(), ended=True))
    (heard,) = api.finish(number)
    whole = dataclasses.replace(GREEDY, speaker_only=True)
    whole = dataclasses.replace(whole, extra={**whole.extra, "non_streaming_mode": False})
    assert_heard(heard.pcm, made.prompt(whole))
