"""The mel filter bank and the spectrogram against their definitions."""

import math

import numpy as np
import pytest
import torch

from voxserve.nn.mel import magnitudes, mel_filters

RATE_HZ, FFT, BINS = 24_000, 1024, 128


def hz_of(mel: float) -> float:
    """Slaney's scale: 15 mels are 1 kHz; above, 27 mels are a factor of 6.4."""
    return 200 / 3 * mel if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)


def test_each_filter_is_a_triangle_of_unit_area() -> None:
    filters = mel_filters(RATE_HZ, FFT, BINS, 0, RATE_HZ / 2).numpy()
    top = 15 + 27 * math.log(RATE_HZ / 2 / 1000) / math.log(6.4)
    corner = [hz_of(top * n / (BINS + 1)) for n in range(BINS + 2)]
    hz = np.arange(FFT // 2 + 1) * RATE_HZ / FFT
    for number, row in enumerate(filters):
        low, middle, high = corner[number : number + 3]
        peak = 2 / (high - low)
        expected = np.interp(hz, [low, middle, high], [0, peak, 0], left=0, right=0)
        np.testing.assert_allclose(row, expected, rtol=0, atol=2e-6 * peak + 1e-9)


def test_magnitudes_are_those_of_the_windowed_fourier_transform() -> None:
    audio = torch.randn(1, 2000, generator=torch.Generator().manual_seed(1))
    window = torch.hann_window(256)
    out = magnitudes(audio, window, 100, 1e-9)
    assert out.shape == (1, 129, 1 + (2000 - 256) // 100)
    frame = np.fft.rfft((audio[0, 300:556] * window).double().numpy())
    np.testing.assert_allclose(out[0, :, 3].numpy(), np.abs(frame), rtol=1e-4, atol=1e-3)


def test_silence_is_the_floor() -> None:
    out = magnitudes(torch.zeros(1, 512), torch.hann_window(256), 128, 1e-8)
    assert out.max().item() == pytest.approx(1e-4)
