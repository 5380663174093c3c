from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxserve import wire
from voxserve.requests import Prompt, ReferenceClip

PROMPT = wire.WirePrompt(
    rows=b"\1\0\0\0", row_columns=1, inject=b"", inject_columns=1, text_open=False, max_steps=9,
    sampling=b"\0\0\0\0", seed=2**63 - 1, input_tokens=1, ignore_eos=False,
    clip_key=None, clip_text=None,
)  # fmt: skip
TO_ENGINE: list[wire.ToEngine] = [
    wire.Submit(request=1, arrival_s=2.5, prompt=PROMPT, ttfa_s=None, max_ahead_s=15.0),
    wire.KeepClip(key="abc", audio=b"\0\0\0\0"),
    wire.ForgetClip(key="abc"),
    wire.AppendText(request=1, rows=b"\1\0\0\0", ended=True),
    wire.Cancel(request=1),
    wire.Progress(request=1, taken_s=0.25),
    wire.Playback(request=1, played_s=0.25),
    wire.Drain(),
]
FROM_ENGINE: list[wire.FromEngine] = [
    wire.Warming(what="codec", done=1, total=9),
    wire.Ready(slots=16, pid=1),
    wire.Started(request=1, queue_s=0.5, deferred_s=0.25),
    wire.PcmChunk(request=1, index=0, pcm=b"\1\2", last=True),
    wire.Finished(request=1, reason="guard", frames=7, steps=8),
    wire.Cancelled(request=1, generated_s=1.5),
    wire.Failed(request=1, status=500, code="generation_failed", message="boom"),
    wire.Stats(
        slots_free=1,
        slots_total=2,
        waiting=3,
        pages={"kv": (4, 5)},
        lane_busy={"LM": 0.5},
        dispatches={"URGENT/first": 6},
        codec_rows={"urgent/2": 3},
        prefills=7,
        step_age_s=0.25,
        loop_s=0.001,
    ),
]


def test_there_is_a_sample_of_every_message() -> None:
    assert {type(message) for message in TO_ENGINE} == set(get_args(wire.ToEngine))
    assert {type(message) for message in FROM_ENGINE} == set(get_args(wire.FromEngine))


@pytest.mark.parametrize("message", TO_ENGINE, ids=lambda m: type(m).__name__)
def test_a_message_to_the_engine_survives(message: wire.ToEngine) -> None:
    (body,) = wire.Frames().feed(wire.encode(message))
    assert wire.decode_to_engine(body) == message


@pytest.mark.parametrize("message", FROM_ENGINE, ids=lambda m: type(m).__name__)
def test_a_message_from_the_engine_survives(message: wire.FromEngine) -> None:
    (body,) = wire.Frames().feed(wire.encode(message))
    assert wire.decode_from_engine(body) == message


@pytest.mark.parametrize("message", TO_ENGINE, ids=lambda m: type(m).__name__)
def test_a_message_the_wrong_way_round_is_refused(message: wire.ToEngine) -> None:
    (body,) = wire.Frames().feed(wire.encode(message))
    with pytest.raises(msgspec.ValidationError):
        wire.decode_from_engine(body)


@pytest.mark.parametrize("body", [b"", b"\x90", b"\xc1", b"\x92\xa6Cancel", b"\x92\xa6Cancel\xa1x"])
def test_a_broken_body_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.decode_to_engine(body)


@given(st.lists(st.sampled_from(FROM_ENGINE), max_size=6), st.data())
def test_frames_come_out_whole_whatever_the_cuts(
    messages: list[wire.FromEngine], data: st.DataObject
) -> None:
    stream = b"".join(wire.encode(message) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    frames = wire.Frames()
    bodies: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        bodies += frames.feed(memoryview(stream)[start:end])
    assert [wire.decode_from_engine(body) for body in bodies] == messages


def test_a_frame_waits_for_its_last_byte() -> None:
    stream = wire.encode(wire.Drain())
    frames = wire.Frames()
    assert frames.feed(stream[:-1]) == []
    assert frames.feed(stream[-1:]) == [stream[4:]]


def test_a_length_above_the_limit_is_refused_before_any_of_it_arrives() -> None:
    length = wire.MAX_FRAME_BYTES + 1
    with pytest.raises(ValueError, match=f"{length} bytes, at most {wire.MAX_FRAME_BYTES}"):
        wire.Frames().feed(length.to_bytes(4, "little"))


@pytest.mark.parametrize(
    "clip", [None, ReferenceClip("abc", np.linspace(-1, 1, 5, dtype=np.float32), "hello")]
)
@pytest.mark.parametrize("inject_rows", [0, 3])
def test_a_prompt_survives(clip: ReferenceClip | None, inject_rows: int) -> None:
    prompt = Prompt(
        rows=np.arange(12, dtype=np.int32).reshape(4, 3),
        inject=np.arange(inject_rows * 2, dtype=np.int32).reshape(inject_rows, 2),
        text_open=True,
        max_steps=77,
        sampling=np.array([0.9, 50, 1, 1.05, 2], np.float32),
        seed=2**63 - 1,
        input_tokens=5,
        ignore_eos=True,
        clip=clip,
    )
    submit = wire.Submit(request=1, arrival_s=0.0, prompt=wire.pack_prompt(prompt), ttfa_s=0.2)
    back = wire.decode_to_engine(wire.encode(submit)[4:])
    assert isinstance(back, wire.Submit)
    clips = {}
    if clip:
        kept = wire.decode_to_engine(wire.encode(wire.pack_clip(clip))[4:])
        assert isinstance(kept, wire.KeepClip)
        clips[kept.key] = wire.unpack_clip(kept)
    unpacked = wire.unpack_prompt(back.prompt, clips)

    np.testing.assert_array_equal(unpacked.rows, prompt.rows, strict=True)
    np.testing.assert_array_equal(unpacked.inject, prompt.inject, strict=True)
    np.testing.assert_array_equal(unpacked.sampling, prompt.sampling, strict=True)
    for name in ("text_open", "max_steps", "seed", "input_tokens", "ignore_eos"):
        assert getattr(unpacked, name) == getattr(prompt, name)
    assert (unpacked.clip is None) == (clip is None)
    if clip and unpacked.clip:
        assert (unpacked.clip.key, unpacked.clip.text) == (clip.key, clip.text)
        np.testing.assert_array_equal(unpacked.clip.audio, clip.audio, strict=True)


def test_a_transposed_array_travels_in_row_order() -> None:
    rows = np.arange(6, dtype=np.int32).reshape(2, 3).T
    prompt = Prompt(rows, rows, False, 1, np.zeros(5, np.float32), 0, 0)
    packed = wire.pack_prompt(prompt)
    np.testing.assert_array_equal(wire.unpack_rows(packed.rows, packed.row_columns), rows)
