"""Log-mel features: the Slaney filter bank and a magnitude spectrogram, in torch alone."""

import math

import torch
from torch import Tensor

_LINEAR_HZ = 200.0 / 3
_BREAK_HZ = 1000.0
_LOG_STEP = math.log(6.4) / 27.0


def _to_mel(hz: float) -> float:
    """Slaney's scale: linear up to 1 kHz, logarithmic above."""
    if hz < _BREAK_HZ:
        return hz / _LINEAR_HZ
    return _BREAK_HZ / _LINEAR_HZ + math.log(hz / _BREAK_HZ) / _LOG_STEP


def _to_hz(mels: Tensor) -> Tensor:
    bend = _BREAK_HZ / _LINEAR_HZ
    return torch.where(
        mels < bend, mels * _LINEAR_HZ, _BREAK_HZ * torch.exp((mels - bend) * _LOG_STEP)
    )


def mel_filters(rate_hz: int, fft: int, bins: int, low_hz: float, high_hz: float) -> Tensor:
    """Triangular filters of equal area on Slaney's mel scale: [bins, fft / 2 + 1] float32.

    The same as librosa's `filters.mel` with its defaults (norm and scale of Slaney).
    """
    edges = torch.linspace(_to_mel(low_hz), _to_mel(high_hz), bins + 2, dtype=torch.float64)
    corner = _to_hz(edges)
    bin_hz = torch.linspace(0, rate_hz / 2, fft // 2 + 1, dtype=torch.float64)
    width = corner.diff()
    slope = corner[:, None] - bin_hz
    rising, falling = -slope[:-2] / width[:-1, None], slope[2:] / width[1:, None]
    filters = torch.minimum(rising, falling).clamp(min=0)
    return (filters * (2.0 / (corner[2:] - corner[:-2]))[:, None]).float()


def magnitudes(audio: Tensor, window: Tensor, hop: int, floor: float) -> Tensor:
    """sqrt(|STFT|² + floor) of audio [B, T] float32, already padded; window [fft] float32.

    Returns [B, fft / 2 + 1, 1 + (T - fft) // hop].
    """
    size = window.shape[0]
    spectrum = torch.stft(
        audio, size, hop_length=hop, window=window, center=False, return_complex=True
    )
    return torch.sqrt(torch.view_as_real(spectrum).pow(2).sum(-1) + floor)
