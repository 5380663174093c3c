"""Qwen3-TTS equals its reference, qwen-tts 0.1.1, on small random checkpoints in float32.

make_goldens.py made the goldens. Codes must be identical. Waveforms may differ by 1e-5: the
reference's own rounding, against itself in float64, is 1.5e-6. Speaker vectors have values up to
3.6 and go through softmax and square roots, hence 1e-5 too.
"""

import pytest
import torch
from torch.testing import assert_close

from tests.parity.qwen3_tts.checkpoint import speech_like, uniform
from tests.parity.qwen3_tts.rig import CASES, GOLDENS, REPORT, host, model, request, rig_for
from voxserve.text.clean import clean

MODELS = sorted({case["model"] for case in CASES})
CLIPS_S = (1.07, 2.0, 12.3)
ATOL = 1e-5


@pytest.mark.parametrize("text", REPORT["tokens"])
def test_tokens_equal_the_reference(text: str) -> None:
    assert host("custom_voice-1b7").tokens.encode(clean(text)) == REPORT["tokens"][text]


@pytest.mark.parametrize("name", MODELS)
def test_codes_equal_the_reference(name: str) -> None:
    """All cases of a checkpoint at once, in one batch that rows leave as they end."""
    numbers = [n for n, case in enumerate(CASES) if case["model"] == name]
    rig = rig_for(name, slots=len(numbers))
    spoken = rig.speak([rig.host.prompt(request(CASES[n])) for n in numbers])
    for number, codes in zip(numbers, spoken, strict=True):
        expected = GOLDENS[f"case{number}.codes"].long()
        assert codes.tolist() == expected.tolist(), f"case {number}: {CASES[number]}"


@pytest.mark.parametrize("number", [n for n in range(len(CASES)) if f"case{n}.wave" in GOLDENS])
def test_waves_equal_the_reference(number: int) -> None:
    """The first six frames, in chunks; after a clip, the codec goes on from behind it."""
    case = CASES[number]
    rig = rig_for(case["model"])
    (codes,) = rig.speak([rig.host.prompt(request(case, frames=6))])
    expected = GOLDENS[f"case{number}.wave"]
    cuts = [1, 2, len(codes) - 3] if len(codes) > 3 else [1] * len(codes)
    wave = rig.sound(rig.slots - 1, codes, cuts)
    assert_close(wave, expected, atol=ATOL, rtol=0)


def test_codec_decoder_equals_one_shot() -> None:
    """Also past frame 300, where the reference's public call would begin a new window."""
    noise = torch.from_numpy(uniform("codes", (330, 16)))
    codes = ((noise + 1) * 1024).long().clamp(0, 2047)
    wave = rig_for("custom_voice-1b7").sound(2, codes, [1, 2, 4, *([10] * 32), 3])
    for first, last in ((0, 2), (298, 302), (329, 330)):
        expected = GOLDENS[f"codec.frames{first}-{last}"]
        assert_close(wave[first * 1920 : last * 1920], expected, atol=ATOL, rtol=0)


def test_the_reference_differs_from_itself_only_past_its_window() -> None:
    """It decodes 300 frames at a time with 25 of context; we follow its one-shot form. On these
    weights its windows differ by 0.7 % (relative RMS) of the sound from frame 300 on."""
    measured = REPORT["codec"]
    assert measured["windowed_first_300_difference"] < ATOL
    assert 0.005 < measured["windowed_rest_relative_rms"] < 0.01
    assert measured["clamped_share"] < 1e-4


@pytest.mark.parametrize("seconds", CLIPS_S)
def test_reference_codes_equal_the_reference(seconds: float) -> None:
    clip = torch.from_numpy(speech_like(seconds))[None]
    encoder = model("base-1b7").sound.encoder
    assert encoder is not None
    with torch.inference_mode():
        codes = encoder(clip, torch.tensor([clip.shape[1]]))
    assert codes[0].tolist() == GOLDENS[f"clip{seconds}.codes"].tolist()


def test_speaker_vectors_equal_the_reference() -> None:
    """Clips of different lengths in one padded batch."""
    clips = [torch.from_numpy(speech_like(seconds)) for seconds in CLIPS_S]
    audio = torch.nn.utils.rnn.pad_sequence(clips, batch_first=True)
    encoder = model("base-1b7").language.speaker_encoder
    assert encoder is not None
    with torch.inference_mode():
        vectors = encoder(audio, torch.tensor([len(clip) for clip in clips]))
    expected = torch.stack([GOLDENS[f"clip{seconds}.speaker"] for seconds in CLIPS_S])
    assert_close(vectors, expected, atol=ATOL, rtol=0)


def test_mel_features_equal_the_reference() -> None:
    clip = torch.from_numpy(speech_like(CLIPS_S[0]))[None]
    encoder = model("base-1b7").language.speaker_encoder
    assert encoder is not None
    mel, frames = encoder.log_mel(clip, torch.tensor([clip.shape[1]]))
    assert frames.tolist() == [GOLDENS["mel"].shape[1]]
    assert_close(mel[0], GOLDENS["mel"], atol=1e-4, rtol=0)
