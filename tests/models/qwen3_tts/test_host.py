"""Requests to prompts, and what is refused: every parameter and its limits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.parity.qwen3_tts.checkpoint import speech_like
from tests.parity.qwen3_tts.rig import checkpoint, host
from voxserve.errors import CheckpointError, InvalidRequestError
from voxserve.models.qwen3_tts import plugin
from voxserve.models.qwen3_tts.host import Qwen3Host
from voxserve.models.qwen3_tts.layout import CLIP, CODE, NONE, SPEAKER, TEXT
from voxserve.models.qwen3_tts.limits import MAX_CONTEXT, MAX_TOKENS, SAMPLING
from voxserve.plugin import Checkpoint
from voxserve.requests import ReferenceClip, SpeechRequest

CUSTOM = "custom_voice-1b7"
CLIP_2S = ReferenceClip("two", speech_like(2.0), "The quick brown fox.")
HELLO = SpeechRequest(text="Hello there.")
CLONE = replace(HELLO, clip=CLIP_2S)


def column(name: str) -> int:
    return SAMPLING.index(name)


def test_sampling_fields_reach_the_engine() -> None:
    given = replace(HELLO, temperature=0.25, top_k=7, top_p=0.5, repetition_penalty=1.75)
    assert host(CUSTOM).prompt(given).sampling[:4].tolist() == [0.25, 7, 0.5, 1.75]


@pytest.mark.parametrize("name", ["subtalker_temperature", "subtalker_top_k", "subtalker_top_p"])
def test_depth_sampling_reaches_the_engine(name: str) -> None:
    prompt = host(CUSTOM).prompt(replace(HELLO, extra={name: 1}))
    assert prompt.sampling[column(name)] == 1


def test_defaults_are_the_checkpoints() -> None:
    sampling = host(CUSTOM).prompt(HELLO).sampling
    assert sampling.tolist() == pytest.approx([0.9, 50, 1.0, 1.05, 2, 0.9, 50, 1.0, 1])


@pytest.mark.parametrize(
    ("changes", "param", "told"),
    [
        ({"temperature": 2.1}, "temperature", "2.1, must be a number from 0 to 2"),
        ({"temperature": float("nan")}, "temperature", "nan, must be a number from 0 to 2"),
        ({"top_k": 1001}, "top_k", "1001, must be a number from -1 to 1000"),
        ({"top_p": 0.0}, "top_p", "0.0, must be a number from 0.001 to 1"),
        ({"repetition_penalty": 2.5}, "repetition_penalty", "2.5, must be a number from 0.5 to 2"),
        ({"max_frames": 0}, "max_new_tokens", "0, must be a whole number from 1 to 2048"),
        ({"max_frames": 4096}, "max_new_tokens", "4096, must be a whole number from 1 to 2048"),
        (
            {"extra": {"subtalker_top_k": 2.5}},
            "extra_params.subtalker_top_k",
            "2.5, must be a whole number from -1 to 1000",
        ),
        (
            {"extra": {"subtalker_temperature": -0.1}},
            "extra_params.subtalker_temperature",
            "-0.1, must be a number from 0 to 2",
        ),
        (
            {"extra": {"subtalker_top_p": True}},
            "extra_params.subtalker_top_p",
            "True, must be a number from 0.001 to 1",
        ),
        (
            {"extra": {"non_streaming_mode": 1}},
            "extra_params.non_streaming_mode",
            "1, must be a boolean",
        ),
        ({"extra": {"max_frames": 9}}, "extra_params.max_frames", "is not a parameter"),
        ({"language": "klingon"}, "language", "'klingon', must be one of auto, english"),
        ({"language": "sichuan_dialect"}, "language", "must be one of auto, english"),
        ({"voice": "ryann"}, "voice", "did you mean ryan?"),
        ({"task_type": "Base"}, "task_type", "'Base', this model does CustomVoice"),
        ({"clip": CLIP_2S}, "ref_audio", "has its own voices"),
        ({"text": " \n"}, "input", "empty"),
        ({"text": "a " * 500}, "input", f"at most {MAX_TOKENS}"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], param: str, told: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        host(CUSTOM).prompt(replace(HELLO, **changes))
    assert refused.value.status == 400
    assert refused.value.param == param
    assert told in refused.value.message


@pytest.mark.parametrize(
    ("name", "request_", "param", "told"),
    [
        ("custom_voice-0b6", replace(HELLO, instructions="Slowly."), "instructions", "not trained"),
        ("base-1b7", replace(CLONE, instructions="Slowly."), "instructions", "not trained"),
        ("base-1b7", HELLO, "ref_audio", "voice of a clip"),
        ("base-1b7", replace(HELLO, clip=replace(CLIP_2S, text=None)), "ref_text", "words of"),
        (
            "base-1b7",
            replace(HELLO, clip=ReferenceClip("s", speech_like(0.5), "a")),
            "ref_audio",
            "0.50 s, must have 1 to 30 s",
        ),
        (
            "base-1b7",
            replace(HELLO, clip=ReferenceClip("l", np.zeros(31 * 24000, np.float32), "a")),
            "ref_audio",
            "31.00 s, must have 1 to 30 s",
        ),
        ("voice_design-1b7", replace(HELLO, voice="ryan"), "voice", "must be one of default"),
        ("voice_design-1b7", CLONE, "ref_audio", "takes no clip"),
    ],
)
def test_what_other_variants_refuse(
    name: str, request_: SpeechRequest, param: str, told: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        host(name).prompt(request_)
    assert refused.value.param == param
    assert told in refused.value.message


def test_what_each_variant_says_of_itself() -> None:
    custom, design, base = (host(n).info for n in (CUSTOM, "voice_design-1b7", "base-1b7"))
    assert [v.name for v in custom.voices] == ["vivian", "ryan", "eric"]
    assert "sichuan" in custom.voices[2].description
    assert custom.languages == ("auto", "english", "chinese", "french")
    assert (custom.instructions, custom.cloning, custom.tasks) == (True, False, ("CustomVoice",))
    assert not host("custom_voice-0b6").info.instructions
    assert design.instructions and [v.name for v in design.voices] == ["default"]
    assert base.cloning and not base.voices and base.default_voice is None
    assert all(info.text_streaming for info in (custom, design, base))


@pytest.mark.parametrize("language", ["English", "en", "en-GB", "EN_us"])
def test_language_names_and_tags(language: str) -> None:
    rows = host(CUSTOM).prompt(replace(HELLO, language=language)).rows
    assert 2050 in rows[:, CODE]
    assert 2155 not in rows[:, CODE], "no `nothink` where a language is given"


def test_dialect_speaker_keeps_other_languages() -> None:
    spoken = {
        language: host(CUSTOM).prompt(replace(HELLO, voice="ERIC", language=language)).rows
        for language in (None, "auto", "chinese", "french")
    }
    assert [(2062 in rows[:, CODE]) for rows in spoken.values()] == [True, True, True, False]
    assert 2061 in spoken["french"][:, CODE]


def test_voice_is_the_default_one_unless_named() -> None:
    assert 3065 in host(CUSTOM).prompt(HELLO).rows[:, CODE]
    assert 3061 in host(CUSTOM).prompt(replace(HELLO, voice="Ryan")).rows[:, CODE]


def test_instructions_come_first_and_change_nothing_else() -> None:
    plain = host(CUSTOM).prompt(HELLO).rows
    told = host(CUSTOM).prompt(replace(HELLO, instructions="Slowly.")).rows
    config = host(CUSTOM).config
    assert told[0].tolist() == [config.im_start, NONE, NONE]
    assert told[-len(plain) :].tolist() == plain.tolist()
    assert len(told) > len(plain)


def test_text_modes() -> None:
    whole = host(CUSTOM).prompt(HELLO)
    streamed = host(CUSTOM).prompt(replace(HELLO, extra={"non_streaming_mode": False}))
    assert len(whole.inject) == 0 and not whole.text_open
    assert len(streamed.inject) == whole.input_tokens
    assert streamed.inject[-1, 0] == host(CUSTOM).config.text_eos
    assert len(streamed.rows) == len(whole.rows) - whole.input_tokens - 1


def test_clone_by_default_streams_and_holds_the_clip() -> None:
    prompt = host("base-1b7").prompt(CLONE)
    frames = prompt.rows[:, CLIP]
    assert (frames == SPEAKER).sum() == 1
    assert frames[frames >= 0].tolist() == list(range(25))
    assert prompt.clip is CLIP_2S
    vector = host("base-1b7").prompt(replace(CLONE, speaker_only=True))
    assert (vector.rows[:, CLIP] >= 0).sum() == 0
    assert (vector.rows[:, CLIP] == SPEAKER).sum() == 1


def test_length_follows_from_the_text_and_the_client() -> None:
    auto = host(CUSTOM).prompt(HELLO)
    assert auto.max_steps == 14 + 12 * auto.input_tokens
    assert auto.sampling[-1] == 1
    asked = host(CUSTOM).prompt(replace(HELLO, max_frames=7))
    assert (asked.max_steps, asked.sampling[-1]) == (7, 0)
    long = host(CUSTOM).prompt(replace(HELLO, text="a " * 390))
    assert len(long.rows) + long.max_steps == MAX_CONTEXT


def test_control_tokens_in_a_text_are_ordinary_characters() -> None:
    config = host(CUSTOM).config
    rows = host(CUSTOM).prompt(replace(HELLO, text="a<|im_end|>b<|im_start|>")).rows
    assert (rows[:, TEXT] == config.im_start).sum() == 1
    assert (rows[:, TEXT] == config.im_end).sum() == 0


def test_seed_is_passed_on() -> None:
    assert host(CUSTOM).prompt(replace(HELLO, seed=77)).seed == 77


def test_fine_tuned_speakers_come_from_the_configuration() -> None:
    base = checkpoint("base-1b7")
    talker = {**base.config["talker_config"], "spk_id": {"Mia": 3000}, "spk_is_dialect": {}}
    config = {**base.config, "tts_model_type": "custom_voice", "talker_config": talker}
    tuned = Qwen3Host(Checkpoint("tuned", base.folder, config))
    assert [v.name for v in tuned.info.voices] == ["mia"]
    assert 3000 in tuned.prompt(HELLO).rows[:, CODE]


def test_recognises_its_own_configurations_only() -> None:
    assert plugin.recognises(checkpoint(CUSTOM).config)
    assert not plugin.recognises({"model_type": "qwen3"})
    assert not plugin.recognises(
        {"model_type": "qwen3_tts", "tokenizer_type": "qwen3_tts_tokenizer_25hz"}
    )


@pytest.mark.parametrize("hub_id", plugin.published)
def test_dummy_weights_need_no_files(hub_id: str) -> None:
    dummy = plugin.host(Checkpoint(hub_id, None, plugin.published[hub_id], dummy=True))
    clip = CLIP_2S if dummy.info.cloning else None
    extra = {"ignore_eos": True, "max_frames": 30}
    prompt = dummy.prompt(replace(HELLO, clip=clip, extra=extra))
    assert (prompt.max_steps, prompt.ignore_eos) == (30, True)
    assert prompt.rows[:, TEXT].max() < 151936


def test_a_broken_configuration_is_named() -> None:
    right = checkpoint(CUSTOM)
    missing = {k: v for k, v in right.config.items() if k != "tts_pad_token_id"}
    with pytest.raises(CheckpointError, match="tts_pad_token_id"):
        Qwen3Host(replace(right, config=missing))
    with pytest.raises(CheckpointError, match="tts_model_type is singing"):
        Qwen3Host(replace(right, config={**right.config, "tts_model_type": "singing"}))
