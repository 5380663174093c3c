"""The real engine speaks Higgs Audio v3: zero-shot and clones at once, in chunks."""

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from tests.engine.harness import Api, serving, settings_of
from tests.parity.higgs_audio_v3.checkpoint import speech_like
from tests.parity.higgs_audio_v3.rig import host, model, rig, undelayed
from voxserve.models.higgs_audio_v3.host import HiggsHost
from voxserve.requests import Prompt, ReferenceClip, SpeechRequest
from voxserve.wire import Finished

CLIP = ReferenceClip("one", speech_like(1.5), "The quick brown fox.")
OTHER = ReferenceClip("two", speech_like(2.5))
GREEDY = SpeechRequest(text="Hello there! The news is read aloud.", temperature=0.0, max_frames=40)


@contextmanager
def engine() -> Iterator[tuple[Api, HiggsHost]]:
    """A warm engine of the small model, with few buckets."""
    torch.set_num_threads(1)
    small = copy.copy(host())
    small.spec = dataclasses.replace(small.spec, encode_seconds=(5,), prefill_tokens=(128,))
    config = settings_of({"engine": {"slots": 3, "clips": 2, "context": 256}})
    with serving(config, small, model()) as (api, _):
        yield api, small


def expected(prompt: Prompt) -> np.ndarray:
    """PCM of a prompt that is alone, one stage after the other, decoded uncut."""
    made = rig()
    (one,) = made.speak([prompt])
    codes = undelayed(torch.stack(one.rows), one.frames)
    audio = made.sound(codes, [len(codes)])
    return (audio * 32767).round().clamp(-32768, 32767).short().numpy()


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Api, HiggsHost]]:
    with engine() as started:
        yield started


def test_requests_side_by_side(running: tuple[Api, HiggsHost]) -> None:
    """Some end by themselves, some by their limit; more requests than there are slots."""
    api, made = running
    requests = [
        GREEDY,
        dataclasses.replace(GREEDY, clip=CLIP),
        dataclasses.replace(GREEDY, clip=OTHER, text="Other words here."),
        dataclasses.replace(GREEDY, clip=CLIP, speaker_only=True, max_frames=3),
        dataclasses.replace(GREEDY, text="a", max_frames=26),
    ]
    prompts = [made.prompt(request) for request in requests]
    for heard, prompt in zip(api.say(*prompts), prompts, strict=True):
        assert isinstance(heard.end, Finished)
        pcm, wanted = np.frombuffer(heard.pcm, np.int16), expected(prompt)
        assert len(pcm) == len(wanted)
        assert np.abs(pcm.astype(int) - wanted).max() <= 1
