"""CosyVoice 3's flow and vocoder equal their reference on small random weights.

make_goldens.py made the goldens. Mel frames may differ by 1e-5: the reference's own rounding in
float32 is 1e-5 on these weights, whose frames are up to 6. Sound is compared with the reference in
float64, since the phase that it adds up in float32 drifts (by 1 % of the sound after 2.8 s, on
these weights); ours is carried modulo one turn.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from tests.models.cosyvoice3.sound import TAIL, FlowRig, Speech, VocoderRig, flow, vocoder
from tests.models.cosyvoice3.sound_checkpoint import numbers
from voxserve.models.cosyvoice3.flow import BLOCK_CODES

HERE = Path(__file__).parent
GOLDENS = load_file(HERE / "goldens.safetensors")
REPORT = json.loads((HERE / "report.json").read_text(encoding="utf-8"))
MEL_ATOL = 1e-5
RMS = REPORT["vocoder"]["wave_rms"]
WAVE_ATOL = 1e-4 * RMS
LONG_FRAMES = 490


def speech(case: str) -> Speech:
    sizes = REPORT["cases"][case]
    return Speech(case, sizes["prompt"], sizes["new"])


def test_the_noise_is_the_references() -> None:
    assert_close(flow("float32").noise[[0, 1, 499, 14_999]], GOLDENS["noise"], atol=0, rtol=0)


@pytest.mark.parametrize("case", REPORT["cases"])
def test_mel_frames_equal_the_reference(case: str) -> None:
    rig = FlowRig()
    assert_close(rig.whole(speech(case)), GOLDENS[f"{case}.mel"], atol=MEL_ATOL, rtol=0)


def test_chunks_behind_a_shared_clip_equal_the_reference() -> None:
    """The clip's full blocks first, then one block at a time, as a request is spoken."""
    rig, one = FlowRig(), speech("long")
    assert one.prompt % BLOCK_CODES == TAIL
    rig.listen([one])
    mel = rig.whole(one, [1] * (one.blocks - one.clip_blocks))
    assert_close(mel, GOLDENS["long.mel"], atol=MEL_ATOL, rtol=0)


def test_f0_equals_the_reference() -> None:
    """Both in float64, to a hundred millionth of a hertz."""
    mel = GOLDENS["long.mel"][None]
    state = torch.zeros(1, 512, dtype=torch.float64)
    with torch.inference_mode():
        f0, _ = vocoder("float32").f0_predictor(mel, state, torch.tensor([mel.shape[1]]))
    assert_close(f0[0], GOLDENS["f0"], atol=1e-8, rtol=0)


@pytest.mark.parametrize("cuts", [[142], [24, 50, 50, 18]])
def test_waves_equal_the_reference(cuts: list[int]) -> None:
    wave = VocoderRig().say(GOLDENS["long.mel"], cuts)
    assert_close(wave, GOLDENS["wave"], atol=WAVE_ATOL, rtol=0)


def test_long_waves_equal_the_reference() -> None:
    """9.8 s, after which nothing has drifted."""
    mel = numbers("long mel", (1, 80, LONG_FRAMES), 4.0)[0].T
    wave = VocoderRig().say(mel, [24, *[50] * 9, 16])
    middle = 240 * 480
    for part, name in ((wave[:4800], "begin"), (wave[-9600:], "end")):
        assert_close(part, GOLDENS[f"long.{name}"], atol=WAVE_ATOL, rtol=0)
    assert_close(wave[middle : middle + 4800], GOLDENS["long.middle"], atol=WAVE_ATOL, rtol=0)


def test_codes_to_sound_equals_the_reference() -> None:
    """Both halves in chunks. The mel's rounding moves F0, and the phase adds that up: 2 % of the
    sound after 2.8 s on these weights, whose F0 swings by 100 Hz for a change of one."""
    rig, one = FlowRig(), speech("long")
    mel = rig.whole(one, [1] * one.blocks)
    wave = VocoderRig().say(mel, [24, 50, 50, 18])
    assert_close(wave, GOLDENS["wave"], atol=0.02 * RMS, rtol=0)


def test_the_reference_in_float32_differs_from_itself() -> None:
    """Why the waves are compared with it in float64. Its first 0.4 s are near it still."""
    measured = REPORT["vocoder"]
    assert measured["float32_error_2.8s"] > 20 * WAVE_ATOL
    wave = VocoderRig().say(GOLDENS["long.mel"], [142])[: len(GOLDENS["wave.float32"])]
    drift = 1.2 * measured["float32_error_0.4s"]
    assert_close(wave, GOLDENS["wave.float32"], atol=drift, rtol=0)
    assert measured["clamped_share"] == 0 and 0.9 < measured["voiced_share"] < 1
