"""Higgs Audio v3 equals its reference on a small random checkpoint in float32.

make_goldens.py made the goldens: body and codec by transformers 5.23.0, prompt and state machine as
sglang-omni 0.1.9 has them. Codes must be identical. Waveforms may differ by 1e-4 of their RMS, and
by 1e-5 of it between windows and one uncut decode: against itself in float64 the reference rounds
by 1.3e-5 of it.
"""

import pytest
import torch

from tests.parity.higgs_audio_v3.checkpoint import speech_like
from tests.parity.higgs_audio_v3.rig import (
    CASES,
    GOLDENS,
    HOP,
    REPORT,
    SOUNDS,
    host,
    model,
    random_codes,
    request,
    rig,
    undelayed,
)
from voxserve.models.higgs_audio_v3.tokens import encode
from voxserve.plugin import EndReason
from voxserve.text.clean import clean

CLIPS_S = (1.0, 1.0139, 1.305, 2.0, 4.7)
RELATIVE = 1e-4


def relative(wave: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference, in units of the RMS of what is expected."""
    return float((wave - expected).abs().max() / expected.pow(2).mean().sqrt())


@pytest.mark.parametrize("text", REPORT["tokens"])
def test_tokens_equal_the_reference(text: str) -> None:
    assert encode(host().words, clean(text)) == REPORT["tokens"][text]


def test_codes_equal_the_reference() -> None:
    """All cases at once, in one batch that rows leave as they end."""
    made = rig(slots=len(CASES))
    spoken = made.speak([made.host.prompt(request(case)) for case in CASES])
    for number, one in enumerate(spoken):
        expected = GOLDENS[f"case{number}.rows"].long()
        assert torch.stack(one.rows).tolist() == expected.tolist(), f"{number}: {CASES[number]}"
        by_itself = EndReason.STOP if REPORT["ended"][number] else EndReason.LENGTH
        assert one.ended is by_itself
        frames = len(expected) - 7
        last = undelayed(expected, frames)[-1]
        assert one.frames == frames - (by_itself is EndReason.STOP and int(last.max()) >= SOUNDS)


@pytest.mark.parametrize("number", [n for n in range(len(CASES)) if f"case{n}.wave" in GOLDENS])
def test_waves_equal_the_reference(number: int) -> None:
    """In chunks of every bucket's size and a last one that is padded."""
    rows, expected = GOLDENS[f"case{number}.rows"].long(), GOLDENS[f"case{number}.wave"]
    frames = len(rows) - 7
    sizes = [size for size in (1, 2, 5, 10) if size <= frames - 8]
    made = rig().sound(undelayed(rows, frames), [*sizes, frames - sum(sizes)])
    assert len(made) == frames * HOP
    assert relative(made, expected.clamp(-1, 1)) <= RELATIVE


def test_decoder_equals_the_reference() -> None:
    made = rig().sound(random_codes(30), [1, 2, 5, 10, 10, 2])
    assert relative(made, GOLDENS["decoded"].clamp(-1, 1)) <= RELATIVE


def test_windows_equal_one_uncut_decode() -> None:
    codes = random_codes(97)
    whole = rig().sound(codes, [97])
    for cuts in ([1, 2, 5, 10, 25, 25, 25, 4], [5] * 19 + [2]):
        assert relative(rig().sound(codes, cuts), whole) <= 1e-5, cuts


@pytest.mark.parametrize("seconds", CLIPS_S)
def test_clip_codes_equal_the_reference(seconds: float) -> None:
    clip = torch.from_numpy(speech_like(seconds))[None]
    with torch.inference_mode():
        codes, frames = model().sound.encode(clip, torch.tensor([clip.shape[1]]))
    expected = GOLDENS[f"clip{seconds}.codes"].tolist()
    assert frames.tolist() == [len(expected)]
    assert host().config.codec.clip_frames(clip.shape[1]) == len(expected)
    assert codes[0, : len(expected)].tolist() == expected


def test_padded_clip_codes_equal_the_reference() -> None:
    """All clips in one batch, with rubbish behind their ends."""
    clips = [torch.from_numpy(speech_like(seconds)) for seconds in CLIPS_S]
    audio = torch.full((len(clips), 5 * 24_000), 0.7)
    for row, clip in enumerate(clips):
        audio[row, : len(clip)] = clip
    with torch.inference_mode():
        codes, frames = model().sound.encode(audio, torch.tensor([len(clip) for clip in clips]))
    for row, seconds in enumerate(CLIPS_S):
        expected = GOLDENS[f"clip{seconds}.codes"].tolist()
        assert frames[row] == len(expected)
        assert codes[row, : len(expected)].tolist() == expected, seconds
