"""Deterministic mode on a GPU: the same PCM alone, among many others, and on any lane.

Layers of the published sizes but few of them, random weights, and the whole codec.
"""

import copy
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.harness import Api, serving
from voxserve.config import load_config
from voxserve.models.qwen3_tts.host import Qwen3Host
from voxserve.models.qwen3_tts.published import published
from voxserve.models.qwen3_tts.stages import load
from voxserve.plugin import Checkpoint, Target, row_invariant
from voxserve.requests import Prompt, SpeechRequest

pytestmark = pytest.mark.gpu

NAME = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
SETTINGS: dict[str, Any] = {
    "model": NAME,
    "load_format": "dummy",
    "engine": {"device": "cuda", "deterministic": True, "slots": 65, "context": 256},
    "policy": {"refuse": False, "prefill_rows": 4, "background_rows": 16, "urgent_rows": 8},
}
TEXTS = (
    "Hello there.",
    "The quick brown fox jumps over the lazy dog, and nobody minds it at all. Then it jumps back, "
    "over two more dogs, a fence and a small stream.",
    "One sentence more, of a length between the two.",
)


def checkpoint() -> Checkpoint:
    """The published configuration with two layers in each stack."""
    config = copy.deepcopy(dict(published()[NAME]))
    talker = config["talker_config"]
    for part in (talker, talker["code_predictor_config"]):
        part["num_hidden_layers"] = 2
    return Checkpoint(NAME, None, config, dummy=True)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Qwen3Host, Path]]:
    """An engine of few buckets, and the file that it traces its launches to."""
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    files = checkpoint()
    host = Qwen3Host(files)
    host.spec = dataclasses.replace(host.spec, prefill_tokens=(32, 64))
    model = load(files, Target("cuda", "bfloat16", lm_kernels="fused", codec_kernels="fused"))
    assert row_invariant(model)
    config = load_config(None, {**SETTINGS, "engine": {**SETTINGS["engine"], "trace": str(path)}})
    with serving(config, host, model) as (api, _):
        yield api, host, path


def prompt_of(host: Qwen3Host, seed: int, frames: int) -> Prompt:
    text = TEXTS[seed % len(TEXTS)]
    extra = {"ignore_eos": True, "max_frames": frames}
    return host.prompt(SpeechRequest(text=text, voice="ryan", seed=seed, extra=extra))


def test_alone_and_among_64_others(running: tuple[Api, Qwen3Host, Path]) -> None:
    api, host, _ = running
    frames = [5 + 7 * number % 40 for number in range(65)]
    prompts = [prompt_of(host, number, count) for number, count in enumerate(frames)]
    together = api.say(*prompts)
    hop = host.spec.samples_per_frame
    for number in (0, 1, 20, 37, 64):
        (alone,) = api.say(prompts[number])
        assert len(alone.pcm) == 2 * hop * frames[number]
        assert alone.pcm == together[number].pcm, number
    assert len({heard.pcm[: 2 * hop] for heard in together}) == 65, "seeds make no difference"


def test_chunks_on_either_lane(running: tuple[Api, Qwen3Host, Path]) -> None:
    """Buffered, with a deadline that only its first chunk is near to, and played so fast that every
    chunk is near to its own: three ways over the lanes, one sound."""
    api, host, path = running
    prompt = prompt_of(host, seed=3, frames=60)
    heard, lanes = [], []
    for how in ({"ttfa_s": None}, {"ttfa_s": 5.0}, {"ttfa_s": 5.0, "speed": 1e6}):
        before = len(flushed(path))
        heard += api.say(prompt, **how)
        api.settle()
        lanes.append([lane for lane, name in flushed(path)[before:] if name == "codec"])
    assert len({one.pcm for one in heard}) == 1
    assert set(lanes[0]) == {"BACKGROUND"}
    assert set(lanes[1]) == {"BACKGROUND", "URGENT"}
    assert set(lanes[2]) == {"URGENT"}


def flushed(path: Path) -> list[tuple[str, str]]:
    """`launches` once the engine, which writes them each second, has written the last."""
    seen = launches(path)
    while True:
        time.sleep(1.2)
        seen, before = launches(path), seen
        if len(seen) == len(before):
            return seen


def launches(path: Path) -> list[tuple[str, str]]:
    """(lane, stage) of each launch that a trace holds."""
    events = json.loads(path.read_text())["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    return [(lanes[e["tid"]], e["name"]) for e in events if e["ph"] == "X"]
