"""The host half of tiny: texts to rows, cut anywhere; limits and what is said about them."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.tiny_rows import config, host
from voxserve.checkpoints import find
from voxserve.errors import InvalidRequestError
from voxserve.models.tiny.config import TEXT_BOS, TEXT_END, TEXT_PAD
from voxserve.models.tiny.host import TinyHost
from voxserve.plugin import EndReason
from voxserve.requests import Prompt, ReferenceClip, SpeechRequest

HELLO = SpeechRequest(text="Hé!", seed=3)
CLIP = ReferenceClip("key", np.zeros(48_000, np.float32))
MOST_STEPS = 2045
MOST_BYTES = 2020


def tokens_of(prompt: Prompt) -> list[int]:
    """All text ids in the order in which the model reads them."""
    return [int(prompt.rows[-1, 0]), *prompt.inject[:, 0].tolist()]


def test_prompt_is_laid_out_as_documented() -> None:
    prompt = host().prompt(replace(HELLO, voice="vivian", language="zh"))
    ids = config()
    assert prompt.rows.tolist() == [
        [TEXT_BOS, ids.code_language("zh")],
        [TEXT_PAD, ids.code_voice("vivian")],
        [TEXT_PAD, ids.code_pad],
        [ord("H"), ids.code_bos],
    ]
    assert prompt.inject.tolist() == [[0xC3], [0xA9], [ord("!")], [TEXT_END]]
    assert prompt.rows.dtype == prompt.inject.dtype == np.int32
    assert not prompt.text_open
    assert (prompt.seed, prompt.input_tokens, prompt.ignore_eos) == (3, 4, False)
    assert prompt.max_steps == 13 + 25
    np.testing.assert_allclose(prompt.sampling, [0.9, 50, 1, 1.05, 13], rtol=1e-6)


def test_control_codes_do_not_overlap() -> None:
    ids = config()
    codes = [ids.eos, ids.code_bos, ids.code_pad, ids.code_clip]
    codes += [ids.code_language(language) for language in ids.languages]
    codes += [ids.code_voice(voice) for voice in ids.voices]
    assert sorted(codes) == list(range(ids.codes, ids.code_ids))


def live(pieces: list[str]) -> list[int]:
    """Text ids of a text that comes in `pieces`; the prompt is made as soon as it can be."""
    text = host().live_text(replace(HELLO, text=""))
    prompt, waiting, tokens = None, [], []
    for rows, ended in [*((text.append(piece), False) for piece in pieces), (text.end(), True)]:
        assert rows.shape[1:] == (1,) and rows.dtype == np.int32
        if prompt is not None:
            tokens += rows[:, 0].tolist()
            continue
        waiting.append(rows)
        if sum(map(len, waiting)) > 0:
            prompt = text.prompt(np.concatenate(waiting), ended)
            assert prompt.text_open is not ended
            tokens += tokens_of(prompt)
    return tokens


TEXTS = [
    "Dr. Smith paid $3.50.",
    "你好，世界！",
    "naïve café, e\u0301 and n\u0303o",
    "😀 🇩🇪 👩\u200d👧 done",
    "  a  ",
    "ก\u0e49 ภาษาไทย",
]


def halves(text: str) -> list[str]:
    """One UTF-16 unit a piece; the halves of a pair stand as lone surrogates."""
    raw = text.encode("utf-16-le")
    return [raw[n : n + 2].decode("utf-16-le", "surrogatepass") for n in range(0, len(raw), 2)]


@pytest.mark.parametrize("text", TEXTS)
def test_text_cut_anywhere_gives_the_same_ids(text: str) -> None:
    whole = tokens_of(host().prompt(replace(HELLO, text=text)))
    assert live([text]) == live(list(text)) == live(halves(text)) == whole


@given(st.data())
def test_any_cuts_give_the_same_ids(data: st.DataObject) -> None:
    units = halves(data.draw(st.sampled_from(TEXTS)))
    edges = sorted(data.draw(st.sets(st.integers(0, len(units)))))
    bounds = [0, *edges, len(units)]
    pieces = ["".join(units[a:b]) for a, b in pairwise(bounds)]
    assert live(pieces) == live(["".join(units)])


def test_live_text_may_run_as_long_as_the_context() -> None:
    text = host().live_text(replace(HELLO, text=""))
    assert text.prompt(text.append("Hello"), ended=False).max_steps == MOST_STEPS


def test_the_longest_text_fits_and_one_more_byte_does_not() -> None:
    prompt = host().prompt(replace(HELLO, text="a" * MOST_BYTES))
    assert prompt.max_steps == MOST_STEPS
    pool = host().spec.pools[0]
    assert pool.need(len(prompt.rows), prompt.max_steps) == host().spec.max_context
    refused(replace(HELLO, text="a" * (MOST_BYTES + 1)), "input", "2021 bytes", "at most 2020")
    text = host().live_text(replace(HELLO, text=""))
    text.append("é" * (MOST_BYTES // 2) + "a")
    with pytest.raises(InvalidRequestError, match="at most 2020"):
        text.end()


def refused(request: SpeechRequest, param: str, *said: str) -> InvalidRequestError:
    """The request is refused in whole and live form alike (for all but its text)."""
    with pytest.raises(InvalidRequestError) as caught:
        host().prompt(request)
    assert caught.value.param == param
    for words in said:
        assert words in caught.value.message
    if param != "input":
        with pytest.raises(InvalidRequestError) as live:
            host().live_text(replace(request, text=""))
        assert live.value.message == caught.value.message
    return caught.value


@pytest.mark.parametrize("text", ["", "  ", "\n\t", "\u200b"])
def test_empty_text_is_refused(text: str) -> None:
    assert refused(replace(HELLO, text=text), "input").code == "input_empty"
    empty = host().live_text(replace(HELLO, text=""))
    rows = np.concatenate([empty.append(text), empty.end()])
    with pytest.raises(InvalidRequestError, match="empty"):
        empty.prompt(rows, ended=True)


REFUSED = [
    ({"voice": "nobody"}, "voice", ["'nobody'", "ryan, vivian"]),
    ({"voice": "vivien"}, "voice", ["did you mean vivian?"]),
    ({"language": "xx"}, "language", ["'xx'", "auto, en, zh"]),
    ({"instructions": "whisper"}, "instructions", ["no instructions"]),
    ({"task_type": "VoiceDesign"}, "task_type", ["'VoiceDesign'", "CustomVoice, Base"]),
    ({"task_type": "Base"}, "ref_audio", ["needs a reference clip"]),
    ({"task_type": "CustomVoice", "clip": CLIP}, "ref_audio", ["no reference clip"]),
    ({"temperature": 2.5}, "temperature", ["2.5", "0.0 to 2.0"]),
    ({"top_p": 0.0}, "top_p", ["0.0", "0.01 to 1.0"]),
    ({"top_k": -2}, "top_k", ["-2", "-1 to 1000"]),
    ({"repetition_penalty": 0.1}, "repetition_penalty", ["0.1", "0.5 to 2.0"]),
    ({"max_frames": 0}, "max_new_tokens", ["0", "1 to 2045"]),
    ({"max_frames": 2046}, "max_new_tokens", ["2046", "1 to 2045"]),
]


@pytest.mark.parametrize(("fields", "param", "said"), REFUSED)
def test_refusals_name_field_value_and_limit(
    fields: dict[str, object], param: str, said: list[str]
) -> None:
    refused(replace(HELLO, **fields), param, *said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("samples", "code", "said"),
    [(23_999, "ref_audio_invalid", "1.00 s"), (720_024, "ref_audio_too_long", "30.00 s")],
)
def test_clips_that_are_too_short_or_long_are_refused(samples: int, code: str, said: str) -> None:
    clip = ReferenceClip("key", np.zeros(samples, np.float32))
    assert refused(replace(HELLO, clip=clip), "ref_audio", said, "1 to 30 s").code == code


ACCEPTED = [
    {"voice": "RYAN"},
    {"language": "en-GB"},
    {"language": "Chinese"},
    {"language": "auto"},
    {"task_type": "CustomVoice"},
    {"task_type": "Base", "clip": CLIP},
    {"temperature": 0.0, "top_k": -1, "top_p": 1.0, "repetition_penalty": 1.0},
    {"seed": 2**63 - 1},
]


@pytest.mark.parametrize("fields", ACCEPTED, ids=str)
def test_what_is_in_range_is_accepted(fields: dict[str, object]) -> None:
    host().prompt(replace(HELLO, **fields))  # type: ignore[arg-type]


def test_a_clip_decides_over_a_voice() -> None:
    prompt = host().prompt(replace(HELLO, voice="vivian", clip=CLIP))
    assert prompt.rows[1].tolist() == [TEXT_PAD, config().code_clip]
    assert prompt.clip is CLIP


def test_asked_length_and_forced_length() -> None:
    assert host().prompt(replace(HELLO, max_frames=7)).max_steps == 7
    forced = host().prompt(replace(HELLO, extra={"max_frames": 90, "ignore_eos": True}))
    assert (forced.max_steps, forced.ignore_eos) == (90, True)
    both = replace(HELLO, max_frames=7, extra={"max_frames": 90})
    assert host().prompt(both).max_steps == 7


def test_forced_length_is_there_with_random_weights_alone() -> None:
    checkpoint = find("tiny", dummy=False)[1]
    assert checkpoint.dummy
    properties = TinyHost(checkpoint).info.extra["properties"]
    assert properties["max_frames"]["maximum"] == MOST_STEPS
    assert TinyHost(replace(checkpoint, dummy=False)).info.extra == {}


def test_forced_length_is_exact_whatever_codes_come() -> None:
    steps = host().steps(2)
    steps.admit(1, host().prompt(replace(HELLO, extra={"max_frames": 20, "ignore_eos": True})))
    slot = np.array([1], np.int32)
    for step in range(20):
        codes = np.array([[config().eos if step % 3 else step, 0, 0, 0]], np.int32)
        accepted = steps.accept(slot, np.array([step], np.int32), codes)
        assert accepted.frames.tolist() == [step + 1]
        assert accepted.ended[0] == (EndReason.LENGTH if step == 19 else EndReason.NONE)
    assert steps.chunk_samples(0, 20, True) == 38_400


def test_declared_shapes_fit_together() -> None:
    spec = host().spec
    assert spec.frame_s == 0.08
    assert {size for ramp in spec.ramps for size in ramp} == set(spec.frame_buckets)
    names = [tensor.name for tensor in spec.state]
    assert len(names) == len(set(names))
    pools = {pool.name for pool in spec.pools}
    assert {tensor.pool for tensor in spec.state if tensor.scope == "page"} == pools
    assert len(host().prompt(HELLO).sampling) == len(spec.sampling)


def test_the_host_half_imports_no_torch() -> None:
    program = """
import sys
from voxserve.checkpoints import find
from voxserve.requests import SpeechRequest
plugin, checkpoint = find("tiny", dummy=False)
host = plugin.host(checkpoint)
host.prompt(SpeechRequest(text="Hello"))
live = host.live_text(SpeechRequest(text=""))
live.prompt(live.append("Hello"), ended=False)
host.steps(4)
print([name for name in sys.modules if name.split(".")[0] in ("torch", "safetensors", "triton")])
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
