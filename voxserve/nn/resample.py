"""Change of sample rate on the device, as a strided convolution with windowed-sinc filters."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

ZERO_CROSSINGS = 6
ROLLOFF = 0.99


class Resample(nn.Module):
    """Audio at `from_hz` to audio at `to_hz`.

    Matches `torchaudio.functional.resample` with its defaults (Hann window over six zero crossings,
    cut off at 0.99 of the lower Nyquist frequency). Zeros stand before and behind a sound, so a row
    that is followed by zeros gives what it gives alone.
    """

    kernels: Tensor

    def __init__(self, from_hz: int, to_hz: int) -> None:
        super().__init__()
        common = math.gcd(from_hz, to_hz)
        self.step, self.phases = from_hz // common, to_hz // common
        cut = min(self.step, self.phases) * ROLLOFF
        self.width = math.ceil(ZERO_CROSSINGS * self.step / cut)
        with torch.device("cpu"):
            self.register_buffer("kernels", self._kernels(cut), persistent=False)

    def _kernels(self, cut: float) -> Tensor:
        """One filter for each place of an output sample between two input ones: [phases, 1, K]."""
        place = torch.arange(-self.width, self.width + self.step, dtype=torch.float64) / self.step
        phase = torch.arange(self.phases, dtype=torch.float64)[:, None] / self.phases
        time = ((place - phase) * cut).clamp(-ZERO_CROSSINGS, ZERO_CROSSINGS)
        window = torch.cos(time * math.pi / ZERO_CROSSINGS / 2) ** 2
        return (torch.sinc(time) * window * cut / self.step).float()[:, None]

    def lengths(self, lengths: Tensor) -> Tensor:
        """Samples [B] int64 that come of `lengths` [B] int64 samples."""
        return -(-lengths * self.phases // self.step)

    def forward(self, audio: Tensor) -> Tensor:
        """audio [B, T] float32 -> [B, ceil(T * to_hz / from_hz)] float32."""
        padded = functional.pad(audio, (self.width, self.width + self.step))
        out = functional.conv1d(padded[:, None], self.kernels, stride=self.step)
        samples = -(-audio.shape[1] * self.phases // self.step)
        return out.transpose(1, 2).flatten(1)[:, :samples]
