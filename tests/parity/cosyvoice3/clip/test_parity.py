"""The clip encoder of CosyVoice 3 equals its references on small random weights in float32.

make_goldens.py made the goldens. Codes must be identical; their distances to the next code are in
report.json. Features may differ by 1e-5 where values are about 1; Kaldi's are logs of energies that
cancel down to 1e-7, where its two references differ by 1.6e-4 and float32 is no better.
"""

import json

import torch
from torch.testing import assert_close

from tests.parity.cosyvoice3.clip.rig import CLIPS_S, GOLDENS, HERE, batch, clip, encoder
from voxserve.nn.resample import Resample

ATOL = 1e-5


def test_codes_and_speakers_equal_the_references() -> None:
    """Clips of different lengths in one padded batch, from 24 kHz audio on."""
    with torch.inference_mode():
        out = encoder()(*batch())
    for row, seconds in enumerate(CLIPS_S):
        codes, vector = GOLDENS[f"clip{seconds}.codes"], GOLDENS[f"clip{seconds}.speaker"]
        count = int(out.count[row])
        assert count == min(len(codes), len(clip(seconds)) // 480 // 2)
        assert out.codes[row, :count].tolist() == codes[:count].tolist()
        assert not out.codes[row, count:].any()
        assert not out.mel[row, 2 * count :].any()
        assert_close(out.speaker[row], vector, atol=ATOL, rtol=0)


def test_a_batch_gives_what_each_clip_gives_alone() -> None:
    audio, lengths = batch()
    with torch.inference_mode():
        together = encoder()(audio, lengths)
        for row, length in enumerate(lengths.tolist()):
            room = -(-length // 960) * 960
            alone = encoder()(audio[row : row + 1, :room], lengths[row : row + 1])
            count = int(alone.count[0])
            assert count == int(together.count[row])
            assert torch.equal(alone.codes[0, :count], together.codes[row, :count])
            assert_close(alone.speaker[0], together.speaker[row], atol=ATOL, rtol=0)
            expected = together.mel[row, : 2 * count]
            assert_close(alone.mel[0, : 2 * count], expected, atol=ATOL, rtol=0)


def test_the_prompt_mel_equals_the_reference() -> None:
    audio = clip(CLIPS_S[0])[None]
    mel, frames = encoder().prompt_mel(audio, torch.tensor([audio.shape[1]]))
    assert frames.tolist() == [GOLDENS["mel"].shape[1]]
    assert_close(mel[0], GOLDENS["mel"], atol=ATOL, rtol=0)


def test_resampling_equals_the_reference() -> None:
    audio = clip(CLIPS_S[0])[None]
    heard = encoder().resample(audio)
    assert_close(heard[0], GOLDENS["heard"], atol=1e-6, rtol=0)
    assert encoder().resample.lengths(torch.tensor([audio.shape[1]])).tolist() == [heard.shape[1]]
    up = Resample(16000, 24000)(GOLDENS["heard"][None, :4000])
    assert_close(up[0], GOLDENS["up"], atol=1e-6, rtol=0)


def test_whisper_features_equal_the_reference() -> None:
    heard = GOLDENS["heard"][None]
    mel, frames = encoder().whisper_mel(heard, torch.tensor([heard.shape[1]]))
    assert frames.tolist() == [GOLDENS["whisper"].shape[1]]
    assert_close(mel[0], GOLDENS["whisper"], atol=ATOL, rtol=0)


def test_kaldi_features_equal_the_reference() -> None:
    heard = GOLDENS["heard"][None]
    features, frames = encoder().fbank(heard, torch.tensor([heard.shape[1]]))
    assert frames.tolist() == [GOLDENS["fbank"].shape[1]]
    assert_close(features[0], GOLDENS["fbank"], atol=2e-4, rtol=0)


def test_a_gpu_would_round_no_convolution() -> None:
    seen: list[bool] = []
    conv = encoder().tokenizer.conv1
    hook = conv.register_forward_hook(lambda *_: seen.append(torch.backends.cudnn.allow_tf32))
    before = torch.backends.cudnn.allow_tf32
    with torch.inference_mode():
        encoder()(torch.zeros(1, 24000), torch.tensor([24000]))
    hook.remove()
    assert before and torch.backends.cudnn.allow_tf32
    assert seen == [False]


def test_the_goldens_are_worth_comparing_with() -> None:
    report = json.loads((HERE / "report.json").read_text(encoding="utf-8"))
    assert min(report["distance_to_next_code"].values()) > 1e-4
    assert report["distinct_codes"]["7.03"] > 50
    assert report["port_difference"] < 1e-5
    assert report["speaker_largest"] > 0.5
