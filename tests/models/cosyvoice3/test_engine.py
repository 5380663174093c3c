"""The real engine speaks CosyVoice 3: clips side by side, evicted and heard anew."""

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from tests.engine.harness import Api, serving, settings_of
from tests.models.cosyvoice3.rig import Rig, host, model
from tests.parity.qwen3_tts.checkpoint import speech_like
from voxserve.engine.loop import Loop
from voxserve.models.cosyvoice3.host import CosyVoiceHost
from voxserve.requests import Prompt, ReferenceClip, SpeechRequest
from voxserve.wire import Finished

CLIPS = [
    ReferenceClip(f"clip {seconds}", speech_like(seconds), "The quick brown fox.")
    for seconds in (4.6, 4.2, 3.1)
]
CLIP_PAGES = 8
"""Room for two clips of four, three and two blocks, not for all."""
MADE: dict[tuple[str, bytes, bytes], np.ndarray] = {}


@contextmanager
def engine() -> Iterator[tuple[Api, Loop, CosyVoiceHost]]:
    """A warm engine in float64 (a random vocoder blows rounding up) with few buckets and pages."""
    torch.set_num_threads(1)
    small = copy.copy(host())
    small.spec = dataclasses.replace(small.spec, encode_seconds=(5,), prefill_tokens=(256,))
    settings = {"slots": 3, "clips": 3, "context": 512, "pages": CLIP_PAGES, "dtype": "float64"}
    config = settings_of({"engine": settings, "policy": {"prefill_rows": 2, "urgent_rows": 2}})
    with serving(config, small, model("float64")) as (api, loop):
        yield api, loop, small


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Api, Loop, CosyVoiceHost]]:
    with engine() as started:
        yield started


def asked(made: CosyVoiceHost, clip: ReferenceClip, **fields: object) -> Prompt:
    request = SpeechRequest(text="Hello there!", clip=clip, temperature=0.0, max_frames=30)
    return made.prompt(dataclasses.replace(request, **fields))  # type: ignore[arg-type]


def expected(one: Prompt) -> np.ndarray:
    """PCM of a prompt that is alone, one stage after the other; of equal prompts made once."""
    assert one.clip is not None
    key = (one.clip.key, one.rows.tobytes(), one.inject.tobytes())
    if key not in MADE:
        rig = Rig(dtype="float64")
        rig.encode(0, one.clip)
        audio = rig.say(rig.speak(one))
        MADE[key] = (audio * 32767).round().clamp(-32768, 32767).short().numpy()
    return MADE[key]


def test_clips_side_by_side_and_heard_anew(running: tuple[Api, Loop, CosyVoiceHost]) -> None:
    """More clips than there are pages for: the first is forgotten, and then encoded once more."""
    api, loop, made = running
    before = dict(loop.pages)
    first = [asked(made, CLIPS[0]), asked(made, CLIPS[0], text="Once more."), asked(made, CLIPS[1])]
    then = [asked(made, CLIPS[2], speaker_only=True), asked(made, CLIPS[2])]
    last = [asked(made, CLIPS[0]), asked(made, CLIPS[1], instructions="Slowly.")]
    for prompts in (first, then, last):
        for heard, one in zip(api.say(*prompts), prompts, strict=True):
            assert isinstance(heard.end, Finished)
            pcm, wanted = np.frombuffer(heard.pcm, np.int16), expected(one)
            assert len(pcm) == len(wanted) > 0
            assert np.abs(pcm.astype(int) - wanted).max() <= 1
    assert loop.pages == before
    assert all(pool.free == pool.total for pool in loop.pages.values())


def test_clips_that_find_no_room_wait_for_it(running: tuple[Api, Loop, CosyVoiceHost]) -> None:
    api, loop, made = running
    prompts = [asked(made, clip) for clip in (*CLIPS, CLIPS[0])]
    for heard, one in zip(api.say(*prompts, ttfa_s=None), prompts, strict=True):
        assert isinstance(heard.end, Finished)
        pcm, wanted = np.frombuffer(heard.pcm, np.int16), expected(one)
        assert np.abs(pcm.astype(int) - wanted).max() <= 1
    assert not all(loop.clips.encoded(clip.key) for clip in CLIPS)
