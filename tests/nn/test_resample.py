"""Resampling against what it must do to tones; tests/parity compares it with a reference."""

import math

import pytest
import torch
from torch import Tensor

from voxserve.nn.resample import Resample


def tone(hz: float, rate_hz: int, samples: int) -> Tensor:
    return torch.sin(
        2 * math.pi * hz * torch.arange(samples, dtype=torch.float64) / rate_hz
    ).float()


@pytest.mark.parametrize(("source", "target"), [(24000, 16000), (16000, 24000), (44100, 16000)])
def test_a_tone_below_both_limits_stays(source: int, target: int) -> None:
    out = Resample(source, target)(tone(1000, source, source // 10)[None])[0]
    assert len(out) == target // 10
    inner = slice(40, -40)
    assert (out - tone(1000, target, len(out)))[inner].abs().max() < 2e-3


def test_a_tone_above_the_new_limit_goes() -> None:
    out = Resample(24000, 16000)(tone(10_500, 24000, 2400)[None])[0]
    assert out[40:-40].abs().max() < 0.01


def test_zeros_behind_a_row_change_nothing() -> None:
    resample = Resample(24000, 16000)
    audio = torch.randn(1, 1001, generator=torch.Generator().manual_seed(1))
    alone = resample(audio)
    padded = torch.cat((audio, torch.zeros(1, 500)), dim=1)
    assert resample.lengths(torch.tensor([1001, 3, 1, 0])).tolist() == [alone.shape[1], 2, 1, 0]
    assert torch.equal(resample(padded)[:, : alone.shape[1]], alone)
