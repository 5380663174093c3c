"""Log-mel features as three families of models compute them, in torch alone.

Rows of one batch may differ in length: each gives the features of its clip alone.
"""

import math

import torch
from torch import Tensor, nn

from voxserve.nn.causal_conv import masked, reflect_pad

MEL_FLOOR = 1e-5
POWER_FLOOR = 1e-9
WHISPER_HZ, WHISPER_FFT, WHISPER_HOP = 16_000, 400, 160
KALDI_HZ, KALDI_WINDOW, KALDI_FFT, KALDI_HOP = 16_000, 400, 512, 160

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


def powers(audio: Tensor, window: Tensor, hop: int) -> Tensor:
    """|STFT|² of audio [B, T] float32, already padded; window [fft] float32.

    Returns [B, fft / 2 + 1, 1 + (T - fft) // hop].
    """
    size = window.shape[0]
    spectrum = torch.stft(
        audio, size, hop_length=hop, window=window, center=False, return_complex=True
    )
    return torch.view_as_real(spectrum).pow(2).sum(-1)


def magnitudes(audio: Tensor, window: Tensor, hop: int, floor: float) -> Tensor:
    """sqrt(powers + floor), see `powers`."""
    return torch.sqrt(powers(audio, window, hop) + floor)


class LogMel(nn.Module):
    """Natural log of mel magnitudes of clips of different lengths, frames every `hop` samples.

    Each row is mirrored at its own ends by half of what a window exceeds the hop, as the vocoders
    of the HiFi-GAN family have it (`mel_spectrogram` of Matcha-TTS and of qwen-tts).
    """

    window: Tensor
    filters: Tensor

    def __init__(self, rate_hz: int, fft: int, hop: int, bins: int, high_hz: float) -> None:
        super().__init__()
        self.hop, self.edge = hop, (fft - hop) // 2
        with torch.device("cpu"):
            window = torch.hann_window(fft)
            filters = mel_filters(rate_hz, fft, bins, 0.0, high_hz)
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("filters", filters, persistent=False)

    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """audio [B, T] float32, lengths [B] int64 samples, more than (fft - hop) / 2 each.

        Returns ([B, bins, M], frames [B]); what lies behind a row's frames is unspecified.
        """
        padded = reflect_pad(audio[:, None], lengths, self.edge, self.edge)[:, 0]
        spectrum = magnitudes(padded, self.window, self.hop, POWER_FLOOR)
        mel = torch.log(torch.clamp(self.filters @ spectrum, min=MEL_FLOOR))
        return mel, (lengths + 2 * self.edge - self.window.shape[0]) // self.hop + 1


class WhisperMel(nn.Module):
    """The log-mel features of Whisper at 16 kHz: 100 frames a second, the loudest frame as 0 dB.

    Matches `whisper.log_mel_spectrogram` of each clip alone, to its length.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, bins: int) -> None:
        super().__init__()
        with torch.device("cpu"):
            window = torch.hann_window(WHISPER_FFT)
            filters = mel_filters(WHISPER_HZ, WHISPER_FFT, bins, 0.0, WHISPER_HZ / 2)
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("filters", filters, persistent=False)

    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """audio [B, T] float32 at 16 kHz, lengths [B] int64 samples, more than 200 each.

        Returns ([B, bins, T // 160], frames [B]), zeros behind a row's frames.
        """
        edge = WHISPER_FFT // 2
        padded = reflect_pad(audio[:, None], lengths, edge, edge)[:, 0]
        power = powers(padded, self.window, WHISPER_HOP)[:, :, : audio.shape[1] // WHISPER_HOP]
        frames = lengths // WHISPER_HOP
        mel = masked(self.filters @ power, frames).clamp(min=1e-10).log10()
        loudest = mel.amax(dim=(1, 2), keepdim=True)
        return masked((torch.maximum(mel, loudest - 8.0) + 4.0) / 4.0, frames), frames


def kaldi_mel_filters(rate_hz: int, fft: int, bins: int, low_hz: float) -> Tensor:
    """Kaldi's triangular filters, of height one and straight on the mel scale: [bins, fft / 2 + 1].

    The scale is 1127 ln(1 + f / 700) and ends at half the sample rate.
    """

    def to_mel(hz: Tensor) -> Tensor:
        return 1127.0 * torch.log1p(hz / 700.0)

    ends = to_mel(torch.tensor([low_hz, rate_hz / 2], dtype=torch.float64))
    edges = torch.linspace(float(ends[0]), float(ends[1]), bins + 2, dtype=torch.float64)[:, None]
    place = to_mel(torch.linspace(0, rate_hz / 2, fft // 2 + 1, dtype=torch.float64))
    rising = (place - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - place) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0).float()


class KaldiFbank(nn.Module):
    """Kaldi's log filter-bank features at 16 kHz: 25 ms windows every 10 ms, within the clip.

    Matches `compute-fbank-feats` (and `torchaudio.compliance.kaldi.fbank`) without dither, with its
    defaults: mean taken off each window, pre-emphasis 0.97, Povey's window, filters from 20 Hz.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, bins: int) -> None:
        super().__init__()
        with torch.device("cpu"):
            window = torch.hann_window(KALDI_WINDOW, periodic=False).pow(0.85)
            filters = kaldi_mel_filters(KALDI_HZ, KALDI_FFT, bins, 20.0)
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("filters", filters, persistent=False)

    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """audio [B, T] float32 at 16 kHz, lengths [B] int64 samples, at least 400 each.

        Returns ([B, bins, 1 + (T - 400) // 160], frames [B]); what lies behind a row's frames is
        unspecified.
        """
        parts = audio.unfold(1, KALDI_WINDOW, KALDI_HOP)
        parts = parts - parts.mean(dim=2, keepdim=True)
        before = torch.cat((parts[:, :, :1], parts[:, :, :-1]), dim=2)
        spectrum = torch.fft.rfft((parts - 0.97 * before) * self.window, KALDI_FFT)
        power = torch.view_as_real(spectrum).pow(2).sum(-1)
        energies = (power @ self.filters.T).clamp(min=torch.finfo(torch.float32).eps)
        return energies.log().transpose(1, 2), (lengths - KALDI_WINDOW) // KALDI_HOP + 1
