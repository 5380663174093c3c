"""Requests to rows, and what is refused."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.parity.higgs_audio_v3.checkpoint import speech_like
from tests.parity.higgs_audio_v3.rig import checkpoint, host
from voxserve.errors import CheckpointError, InvalidRequestError
from voxserve.models.higgs_audio_v3 import plugin
from voxserve.models.higgs_audio_v3.host import LICENCE, HiggsHost
from voxserve.models.higgs_audio_v3.limits import SAMPLING
from voxserve.models.higgs_audio_v3.steps import frame_cap
from voxserve.models.higgs_audio_v3.tokens import encode
from voxserve.plugin import Checkpoint
from voxserve.requests import ReferenceClip, SpeechRequest

HELLO = SpeechRequest(text="Hello there!", seed=3)
CLIP = ReferenceClip("one", speech_like(2.0), "The quick brown fox.")
HUB = "bosonai/higgs-tts-3-4b"


def mark(name: str) -> int:
    marks = host().words.marks
    return int(getattr(marks, name))


def test_zero_shot_layout() -> None:
    prompt = host().prompt(HELLO)
    ids = encode(host().words, "Hello there!")
    text = [mark("speak"), mark("text"), *ids, mark("audio")]
    assert prompt.rows.tolist() == [[i, -1] for i in text]
    assert prompt.input_tokens == len(ids) and not prompt.text_open
    assert prompt.max_steps == frame_cap(len(ids)) + 7


def test_clone_layout() -> None:
    rows = host().prompt(replace(HELLO, clip=CLIP)).rows
    spoken = encode(host().words, "The quick brown fox.")
    before = [mark("speak"), mark("ref_text"), *spoken, mark("ref_audio")]
    assert rows[: len(before), 0].tolist() == before
    clip = rows[len(before) : len(before) + 57]
    assert clip.tolist() == [[-1, row] for row in range(50 + 7)]
    assert rows[len(before) + 57].tolist() == [mark("text"), -1]


@pytest.mark.parametrize("words", ["The quick brown fox.", None])
def test_a_clip_needs_no_words(words: str | None) -> None:
    request = replace(HELLO, clip=replace(CLIP, text=words), speaker_only=words is not None)
    rows = host().prompt(request).rows
    assert rows[:3, 0].tolist() == [mark("speak"), mark("ref_audio"), -1]


def test_tags_are_tokens_and_marks_are_characters() -> None:
    words = host().words
    assert words.tags["<|emotion:happy|>"] in encode(words, "x <|emotion:happy|> y")
    spelled = encode(words, "<|audio|> <|im_end|> <|text|>")
    special = {*words.tags.values(), *(mark(n) for n in ("speak", "text", "audio", "ref_audio"))}
    assert not special & set(spelled)


@pytest.mark.parametrize(
    ("changes", "param", "told"),
    [
        ({"text": "  "}, "input", "empty"),
        ({"text": "<|emotion:hapy|> x"}, "input", "did you mean <|emotion:happy|>"),
        ({"text": "word " * 500}, "input", "at most"),
        ({"language": "english"}, "language", "must be auto"),
        ({"max_frames": 0}, "max_new_tokens", "from 1 to 2048"),
        ({"clip": replace(CLIP, audio=speech_like(0.9))}, "ref_audio", "0.90 s, must have 1 to 30"),
        ({"clip": replace(CLIP, audio=speech_like(30.1))}, "ref_audio", "must have 1 to 30 s"),
        ({"clip": replace(CLIP, text="<|sfx:x|>")}, "ref_text", "no control tag"),
    ],
)
def test_refusals_name_field_and_limit(changes: dict[str, object], param: str, told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told.replace("|", r"\|")) as caught:
        host().prompt(replace(HELLO, **changes))  # type: ignore[arg-type]
    assert caught.value.param == param


def test_text_that_is_too_long_can_be_split() -> None:
    """A long clip leaves less room; what does not fit says so by its code."""
    text = "one two three four five six. " * 9
    host().prompt(replace(HELLO, text=text[: len(text) // 2]))
    long = replace(HELLO, text=text, clip=replace(CLIP, audio=speech_like(30.0)))
    with pytest.raises(InvalidRequestError) as caught:
        host().prompt(long)
    assert caught.value.code == "input_too_long"


def test_live_text_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="whole texts"):
        host().live_text(HELLO)


def test_every_request_fits_the_context() -> None:
    """Prompt and steps together, whatever is asked for."""
    for request in (
        HELLO,
        replace(HELLO, max_frames=2048),
        replace(HELLO, clip=replace(CLIP, audio=speech_like(30.0)), max_frames=2048),
        replace(HELLO, text="many words " * 9),
    ):
        prompt = host().prompt(request)
        assert len(prompt.rows) + prompt.max_steps - 1 < host().spec.max_context


def test_sampling_columns() -> None:
    default = host().prompt(HELLO).sampling
    assert dict(zip(SAMPLING, default.tolist(), strict=True)) == {
        "temperature": pytest.approx(0.8),
        "top_k": 30,
        "top_p": pytest.approx(0.8),
        "repetition_penalty": 1,
        "min_steps": 0,
        "auto_length": 1,
    }
    given = host().prompt(replace(HELLO, temperature=0.0, top_k=5, top_p=0.5, max_frames=9))
    assert given.sampling.tolist() == [0, 5, 0.5, 1, 0, 0]
    assert given.max_steps == 9 + 7


def test_the_licence_is_told() -> None:
    info = host().info
    assert info.licence == LICENCE and LICENCE in info.notice and "non-commercial" in info.notice
    assert info.cloning and not info.text_streaming
    assert "repetition_penalty" not in info.ranges


def test_forced_length_for_dummy_weights_alone() -> None:
    dummy = HiggsHost(Checkpoint(HUB, None, plugin.published[HUB], dummy=True))
    assert set(dummy.info.extra["properties"]) == {"max_frames", "ignore_eos"}
    assert not host().info.extra["properties"]
    extra = {"ignore_eos": True, "max_frames": 200}
    prompt = dummy.prompt(replace(HELLO, extra=extra))
    assert prompt.ignore_eos and prompt.max_steps == 207
    assert prompt.rows[:, 0].max() < dummy.config.body.text_vocabulary


def test_stand_in_words_are_about_as_many_as_real_ones() -> None:
    dummy = HiggsHost(Checkpoint(HUB, None, plugin.published[HUB], dummy=True))
    text = "The quick brown fox jumps over the lazy dog, and nobody minds."
    assert 12 <= len(encode(dummy.words, text)) <= 24


def test_published_shapes() -> None:
    spec = HiggsHost(Checkpoint(HUB, None, plugin.published[HUB], dummy=True)).spec
    assert (spec.samples_per_frame, spec.sample_rate_hz, spec.codebooks) == (960, 24_000, 8)
    assert spec.columns == tuple((book, book) for book in range(8))
    assert (spec.left_frames, spec.ahead_frames) == (10, 10)
    page = next(t for t in spec.state if t.name == "lm.kv.0")
    assert page.shape == (2, 64, 8, 128)
    assert sum(t.name.startswith("lm.kv.") for t in spec.state) == 36


def test_clip_frames_of_the_published_codec() -> None:
    codec = HiggsHost(Checkpoint(HUB, None, plugin.published[HUB], dummy=True)).config.codec
    assert [codec.clip_frames(n) for n in (24_000, 72_000, 72_333, 165_600)] == [25, 75, 76, 173]


def copied(tmp_path: Path, **changes: object) -> Checkpoint:
    """The small checkpoint with other fields in its configuration."""
    source = checkpoint().folder
    assert source is not None
    folder = Path(shutil.copytree(source, tmp_path / "model"))
    config = {**checkpoint().config, **changes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return Checkpoint("copy", folder, config)


def test_the_published_context_is_an_option(tmp_path: Path) -> None:
    spec = HiggsHost(copied(tmp_path, codec_context="published")).spec
    assert (spec.left_frames, spec.ahead_frames) == (12, 8)
    with pytest.raises(CheckpointError, match="one of exact, published"):
        HiggsHost(replace(checkpoint(), config={**checkpoint().config, "codec_context": "other"}))


@pytest.mark.parametrize(
    ("token", "told"), [("<|tts|>", r"has no <\|tts\|>"), ("<|audio|>", r"no <\|audio\|>")]
)
def test_a_tokenizer_without_the_marks_is_refused(tmp_path: Path, token: str, told: str) -> None:
    made = copied(tmp_path)
    assert made.folder is not None
    path = made.folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] != token]
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CheckpointError, match=told):
        HiggsHost(made)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"added_tokens": [{}]}'])
def test_a_damaged_tokenizer_is_named(tmp_path: Path, text: str) -> None:
    made = copied(tmp_path)
    assert made.folder is not None
    (made.folder / "tokenizer.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        HiggsHost(made)


def test_recognises_its_own_alone() -> None:
    config = checkpoint().config
    assert plugin.recognises(config)
    assert not plugin.recognises({**config, "model_type": "qwen3"})
    whisper = {**config["audio_encoder_config"], "encoder_type": "whisper"}
    assert not plugin.recognises({**config, "audio_encoder_config": whisper})


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("audio_encoder_config", {"num_codebooks": 8, "vocab_size": 1026}, "codec 1024"),
        ("audio_encoder_config", {"tie_word_embeddings": False}, "must be tied"),
        ("text_config", {"model_type": "llama"}, "must be a Qwen 3"),
    ],
)
def test_configurations_of_other_models(field: str, value: dict[str, object], told: str) -> None:
    inner = {**checkpoint().config[field], **value}
    if told == "codec 1024":
        inner["vocab_size"] = 500
    with pytest.raises(CheckpointError, match=told):
        HiggsHost(replace(checkpoint(), config={**checkpoint().config, field: inner}))


def test_no_torch_on_the_host_side() -> None:
    code = (
        "import sys; from voxserve.plugin import Checkpoint;"
        "from voxserve.models.higgs_audio_v3 import plugin;"
        f"plugin.host(Checkpoint('x', None, plugin.published[{HUB!r}], dummy=True)).steps(4);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_prompt_rows_are_int32() -> None:
    assert host().prompt(HELLO).rows.dtype == np.int32
