"""The vocoder's excitation: F0 from mel frames, harmonics and noise, and their spectrum.

Follows `CausalConvRNNF0Predictor`, `SineGen2` and `SourceModuleHnNSF` of CosyVoice. The phase of a
harmonic is constant over each mel frame, as in the reference, whose upsampling repeats it. It is
carried modulo one turn and in float64; the reference adds it up in float32 without end.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.cosyvoice3.config import VocoderConfig
from voxserve.models.cosyvoice3.state import F0_AHEAD, F0_KERNEL, F0_LAYERS, frame_samples
from voxserve.models.cosyvoice3.weight_norm import NormedConv
from voxserve.nn.causal_conv import Memory

NOISE_S = 60
"""Seconds after which the excitation's noise repeats."""
NOISE_PIECE = 1 << 18
HUSH = 3
"""The noise of unvoiced frames is this much softer than a harmonic."""


class F0Predictor(nn.Module):
    """Fundamental frequency of each mel frame, in Hz; float64, whatever the other weights are."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        width = config.f0_channels
        layers: list[nn.Module] = [NormedConv(config.mel, width, F0_AHEAD + 1), nn.ELU()]
        for _ in range(F0_LAYERS):
            layers += [NormedConv(width, width, F0_KERNEL), nn.ELU()]
        self.condnet = nn.ModuleList(layers)
        self.classifier = nn.Linear(width, 1)

    def forward(self, mel: Tensor, flat: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """mel [B, W, mel], zeros behind the end; flat: the convolutions' state behind `lengths`
        frames. Returns (F0 [B, W] float64, the new state)."""
        first, *rest = list(self.condnet)
        assert isinstance(first, NormedConv)
        memory = Memory(flat, lengths)
        x = first.ahead(mel.double().transpose(1, 2))
        for layer in rest:
            x = memory.run(layer, x, 1) if isinstance(layer, NormedConv) else layer(x)
        return self.classifier(x.transpose(1, 2))[..., 0].abs(), memory.after


class Source(nn.Module):
    """Harmonics of F0 and noise, merged into one signal.

    noise: buffer [samples], the fixed uniform noise of all harmonics as the merging layer weighs
    it, so that it is one number a sample; `hear` makes it.
    """

    noise: Tensor

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        self.samples = frame_samples(config)
        self.l_linear = nn.Linear(config.harmonics + 1, 1)

    @torch.no_grad()
    def hear(self, table: Tensor | None = None) -> None:
        """Set the noise: table [samples, harmonics + 1] float32 in [0, 1), or one of our own."""
        weight = self.l_linear.weight[0].float()
        if table is not None:
            noise = table.to(weight.device) @ weight
        else:
            generator = torch.Generator().manual_seed(0)
            total, parts = NOISE_S * self.config.rate_hz, []
            for first in range(0, total, NOISE_PIECE):
                shape = (min(NOISE_PIECE, total - first), len(weight))
                piece = torch.rand(shape, generator=generator)
                parts.append(piece.to(weight.device) @ weight)
            noise = torch.cat(parts)
        self.register_buffer("noise", noise, persistent=False)

    def forward(
        self, f0: Tensor, phase: Tensor, start: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """F0 [B, W] float64 to the excitation [B, W * 480].

        phase: [B, harmonics + 1] float64, turns before the first frame, divided by the frame's
        samples. start: [B] int64, frames before this window, lengths: [B] int64, frames after
        which the new phase is taken. Returns (excitation float32 or wider, the new phase).
        """
        config = self.config
        number = torch.arange(1, config.harmonics + 2, device=f0.device)
        step = (f0[..., None] * number / config.rate_hz) % 1
        turns = phase[:, None] + step.cumsum(dim=1)
        at = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, turns.shape[2])
        after = turns.gather(1, at)[:, 0] % 1
        weight, bias = self.l_linear.weight[0], self.l_linear.bias
        kind = torch.promote_types(weight.dtype, torch.float32)
        sines = torch.sin((turns * self.samples % 1).to(kind) * (2 * math.pi)) * config.alpha
        voiced = (f0 > config.voiced).to(kind)
        tone = (sines @ weight.to(kind)) * voiced + bias.to(kind)
        loudness = torch.where(voiced > 0, config.sigma, config.alpha / HUSH)
        place = start[:, None] * self.samples
        place = place + torch.arange(f0.shape[1] * self.samples, device=f0.device)
        noise = self.noise[place % len(self.noise)].to(kind).view(*f0.shape, self.samples)
        merged = tone[..., None] + loudness[..., None].to(kind) * noise
        return torch.tanh(merged).flatten(1), after


class Spectrum(nn.Module):
    """Short Fourier transforms as convolutions, with the window folded in (Hann, periodic)."""

    forth: Tensor
    back: Tensor
    power: Tensor

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.size, self.hop = config.fft, config.hop

    def finish(self, like: Tensor) -> None:
        """Make the bases, on the device and of the type of `like`."""
        size = self.size
        place = torch.arange(size, dtype=torch.float64)
        window = torch.sin(place * math.pi / size) ** 2
        line = torch.arange(size // 2 + 1, dtype=torch.float64)[:, None]
        angle = 2 * math.pi * line * place / size
        waves = torch.cat((angle.cos(), -angle.sin()))
        weight = torch.full((size // 2 + 1, 1), 2.0 / size, dtype=torch.float64)
        weight[[0, -1]] = 1.0 / size
        # Lines 0 and size / 2 have no imaginary part.
        silent = torch.ones(size + 2, 1, dtype=torch.float64)
        silent[[size // 2 + 1, -1]] = 0
        bases = {
            "forth": (waves * window)[:, None],
            "back": (waves * silent * weight.repeat(2, 1) * window)[:, None],
            "power": (window**2)[None, None],
        }
        for name, basis in bases.items():
            self.register_buffer(name, basis.to(like), persistent=False)

    def analyse(self, x: Tensor) -> Tensor:
        """x [B, 1, S] -> real, then imaginary parts [B, fft + 2, (S - fft) / hop + 1]."""
        return functional.conv1d(x, self.forth, stride=self.hop)

    def synthesise(self, lines: Tensor, real: Tensor) -> Tensor:
        """Overlap and add lines [B, fft + 2, 1 + C] where `real` [B, 1 + C] says they exist.

        The first line belongs to the sound before: the result begins where a centred transform of
        the other C would, and has (C - 1) * hop samples. Divided by the windows that met, as
        `torch.istft` does.
        """
        there = real[:, None].to(lines.dtype)
        skip, size = 3 * self.hop, (lines.shape[2] - 2) * self.hop
        sound = functional.conv_transpose1d(lines * there, self.back, stride=self.hop)
        power = functional.conv_transpose1d(there, self.power, stride=self.hop)
        power = power[:, 0, skip : skip + size].clamp(min=torch.finfo(lines.dtype).tiny)
        return sound[:, 0, skip : skip + size] / power
