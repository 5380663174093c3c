"""Filter banks and spectrograms against their definitions; tests/parity has the references."""

import math

import numpy as np
import pytest
import torch

from voxserve.nn.mel import (
    KaldiFbank,
    LogMel,
    WhisperMel,
    kaldi_mel_filters,
    magnitudes,
    mel_filters,
)

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


def test_kaldi_filters_are_triangles_of_height_one_on_its_scale() -> None:
    filters = kaldi_mel_filters(16000, 512, 80, 20.0).numpy()
    assert filters.shape == (80, 257)
    scale = 1127 * np.log(1 + np.arange(257) * 16000 / 512 / 700)
    corner = np.linspace(1127 * np.log(1 + 20 / 700), 1127 * np.log(1 + 8000 / 700), 82)
    for number, row in enumerate(filters):
        expected = np.interp(scale, corner[number : number + 3], [0, 1, 0], left=0, right=0)
        np.testing.assert_allclose(row, expected, rtol=0, atol=1e-6)


def test_a_kaldi_frame_is_what_its_definition_says() -> None:
    generator = torch.Generator().manual_seed(2)
    audio = torch.randn(1, 1000, generator=generator) + 0.3
    features, frames = KaldiFbank(80)(audio, torch.tensor([1000]))
    assert frames.tolist() == [4]
    assert features.shape == (1, 80, 4)
    part = audio[0, 320:720].double().numpy()
    part = part - part.mean()
    part = part - 0.97 * np.concatenate((part[:1], part[:-1]))
    part = part * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)) ** 0.85
    power = np.abs(np.fft.rfft(part, 512)) ** 2
    expected = np.log(kaldi_mel_filters(16000, 512, 80, 20.0).numpy() @ power)
    np.testing.assert_allclose(features[0, :, 2].numpy(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "kind", [KaldiFbank(80), WhisperMel(128), LogMel(24000, 1920, 480, 80, 12000.0)]
)
def test_a_row_gives_what_its_clip_gives_alone(kind: torch.nn.Module) -> None:
    audio = torch.randn(2, 9600, generator=torch.Generator().manual_seed(3))
    audio[1] *= 8  # of whose loudness the first row may know nothing
    together, frames = kind(audio, torch.tensor([5000, 9600]))
    alone, count = kind(audio[:1, :5000], torch.tensor([5000]))
    assert frames[0] == count[0]
    inside = together[0, :, : int(count)]
    torch.testing.assert_close(inside, alone[0, :, : int(count)], atol=1e-5, rtol=0)


def test_whisper_features_span_eight_decades_below_the_loudest() -> None:
    audio = torch.zeros(1, 3200)
    audio[0, :800] = torch.sin(torch.arange(800) * 0.7)
    mel, frames = WhisperMel(128)(audio, torch.tensor([3000]))
    assert frames.tolist() == [18]
    real = mel[0, :, :18]
    assert real.max() - real.min() == pytest.approx(2.0)
    assert not mel[0, :, 18:].any()
