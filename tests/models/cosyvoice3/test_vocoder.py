"""The vocoder's stream equals its one shot, for any cuts, in any rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from tests.models.cosyvoice3.sound import VocoderRig, vocoder
from tests.models.cosyvoice3.sound_checkpoint import SMALL_VOCODER, noise_table, numbers
from voxserve.models.cosyvoice3.config import VocoderConfig
from voxserve.models.cosyvoice3.state import conv_columns, emitted_samples, held_frames

FRAMES = 60
HELD = 8
CLOSE = {"float64": 1e-7, "float32": 1e-5}
"""Sound leaves as float32, so float64 ends there too; its loudest sample is about 0.6."""


def mel_of(name: str, frames: int = FRAMES) -> Tensor:
    return numbers(f"mel {name}", (frames, 80), 4.0)


@settings(deadline=None, max_examples=4)
@given(st.integers(HELD + 1, 30), st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_any_cuts_equal_one_shot(first: int, sizes: list[int]) -> None:
    """The first chunk has to be longer than what is held back; the others may be of any size."""
    ends = np.minimum(np.cumsum([first, *sizes]), FRAMES)
    cuts = [int(n) for n in np.diff([0, *ends, FRAMES]) if n]
    mel = mel_of("a")
    whole = VocoderRig(dtype="float64").say(mel, [FRAMES])
    assert_close(VocoderRig(dtype="float64").say(mel, cuts), whole, atol=CLOSE["float64"], rtol=0)


@pytest.mark.parametrize("dtype", CLOSE)
def test_interleaved_rows_equal_each_alone(dtype: str) -> None:
    """Four sounds in four slots, cut at random, in random company; then a slot is used again."""
    rng = np.random.default_rng(3)
    rig = VocoderRig(dtype=dtype)
    mels = {sound: mel_of(str(sound), 20 + 9 * sound) for sound in range(5)}
    alone = {s: VocoderRig(dtype=dtype).say(mel, [len(mel)]) for s, mel in mels.items()}
    parts: dict[int, list[Tensor]] = {sound: [] for sound in mels}
    place = dict.fromkeys(mels, 0)
    slot_of = {0: 2, 1: 0, 2: 3, 3: 1}
    while slot_of:
        company = [int(s) for s in rng.permutation(list(slot_of))[: rng.integers(1, 5)]]
        size = {s: int(rng.integers(1, 16)) + (0 if place[s] else HELD) for s in company}
        chunks = {slot_of[s]: mels[s][place[s] : place[s] + size[s]] for s in company}
        firsts = {slot_of[s]: place[s] for s in company}
        last = {slot_of[s]: place[s] + size[s] >= len(mels[s]) for s in company}
        out = rig.chunk(chunks, firsts, last)
        for sound in company:
            parts[sound].append(out[slot_of[sound]])
            place[sound] += size[sound]
            if place[sound] >= len(mels[sound]):
                slot = slot_of.pop(sound)
                if sound == 0:
                    slot_of[4] = slot
    for sound, pieces in parts.items():
        assert_close(torch.cat(pieces), alone[sound], atol=CLOSE[dtype], rtol=0)


def test_samples_of_chunks() -> None:
    """A first chunk of 12 codes is 0.32 s, of 25 codes 0.84 s; nothing is lost in the end."""
    assert held_frames(SMALL_VOCODER) == HELD
    assert emitted_samples(SMALL_VOCODER, 0, 24, last=False) == 7680
    assert emitted_samples(SMALL_VOCODER, 0, 50, last=False) == 20160
    assert emitted_samples(SMALL_VOCODER, 24, 50, last=False) == 24000
    assert emitted_samples(SMALL_VOCODER, 74, 2, last=True) == (2 + HELD) * 480
    assert emitted_samples(SMALL_VOCODER, 0, 2, last=True) == 960
    assert emitted_samples(SMALL_VOCODER, 0, 6, last=False) == 0


def test_the_state_is_as_large_as_declared() -> None:
    """The rig's states are allocated by it."""
    assert conv_columns(VocoderConfig()) == 134_336
    mel = mel_of("a", 2)
    sound = VocoderRig().say(mel, [2])
    assert sound.shape == (960,) and sound.isfinite().all() and sound.abs().max() <= 0.99


def test_f0_is_wide_whatever_the_weights() -> None:
    rough = vocoder("bfloat16")
    assert rough.conv_post.weight.dtype == torch.bfloat16
    assert rough.f0_predictor.classifier.weight.dtype == torch.float64
    mel = mel_of("a")
    exact = VocoderRig().say(mel, [FRAMES])
    error = VocoderRig(dtype="bfloat16").say(mel, [24, 36]) - exact
    assert error.pow(2).mean().sqrt() / exact.pow(2).mean().sqrt() < 0.05


def test_the_noise_repeats_after_its_table() -> None:
    """Frames 25 … 29 of a sound hear the table's first samples again when it is half a second."""
    module = vocoder("float32")
    table = noise_table(SMALL_VOCODER, 1)[:12_000]
    f0 = torch.zeros(1, 30, dtype=torch.float64)
    phase, none = torch.zeros(1, 9, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    before = module.m_source.noise
    module.m_source.hear(table)
    with torch.inference_mode():
        sound, _ = module.m_source(f0, phase, none, none + 30)
        later, _ = module.m_source(f0, phase, none + 25, none + 30)
    module.m_source.noise = before
    assert_close(sound[:, 12_000:], sound[:, :2_400], atol=0, rtol=0)
    assert_close(later, sound[:, :14_400], atol=0, rtol=0)
    assert sound.std() > 0.001
