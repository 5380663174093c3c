"""The codec of mini: frames of six codes to audio, causal, with all memory in explicit state.

A code is four digits of five levels (finite scalar quantisation, Mentzer et al. 2023), so there
are no codebook vectors. ConvNeXt blocks and an inverse short-time Fourier transform after Vocos
(Siuzdak 2023), padded on the left only.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.mini.config import CodecSizes
from voxserve.nn.attention import tail
from voxserve.nn.rows import Rows

LOUDEST = 6.0
"""Logarithm of the largest magnitude of a spectrum's bin."""
OVERLAP = 1.5
"""Sum of four Hann windows a hop apart."""


class Block(nn.Module):
    """ConvNeXt block over x [B, C, T]. State: the last kernel - 1 columns of its input."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, kernel, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)
        self.scale = nn.Parameter(torch.empty(width))
        self.kept = kernel - 1

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        past = torch.cat((state.to(x.dtype), x), dim=2)
        inner = self.norm(self.depthwise(past).transpose(1, 2))
        inner = self.scale * self.down(functional.gelu(self.up(inner)))
        return x + inner.transpose(1, 2), tail(past, lengths, self.kept)


class Codec(nn.Module):
    def __init__(self, sizes: CodecSizes) -> None:
        super().__init__()
        self.sizes = sizes
        width, kernel = sizes.width, sizes.kernel
        self.first = nn.Linear(sizes.latent, width)
        self.slow = nn.ModuleList(Block(width, kernel) for _ in range(sizes.slow_blocks))
        self.up = nn.Linear(width, sizes.up * width)
        self.fast = nn.ModuleList(Block(width, kernel) for _ in range(sizes.fast_blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, sizes.window + 2)
        window = torch.hann_window(sizes.window, device="cpu")
        self.register_buffer("window", window, persistent=False)

    def forward(self, codes: Tensor, lengths: Tensor, rows: Rows) -> Tensor:
        """Decode codes [B, F, K] int64 and advance the rows' state.

        lengths: [B] int64 real frames. Codes out of range stand in padding only.
        Returns [B, F * samples_per_frame] in [-1, 1].
        """
        x = self.first(self._digits(codes)).transpose(1, 2)
        for number, block in enumerate(self.slow):
            x = rows.run(f"slow.{number}", block, x, lengths)
        x = self.up(x.transpose(1, 2)).unflatten(-1, (self.sizes.up, -1)).flatten(1, 2)
        lengths = lengths * self.sizes.up
        x = x.transpose(1, 2)
        for number, block in enumerate(self.fast):
            x = rows.run(f"fast.{number}", block, x, lengths)
        spectra = self.head(self.norm(x.transpose(1, 2))).float()
        return rows.run("pieces", self._sound, spectra, lengths).clamp(-1, 1)

    def _digits(self, codes: Tensor) -> Tensor:
        """[B, F, K] codes to [B, F, latent] numbers in [-1, 1]."""
        sizes = self.sizes
        powers = [sizes.levels**place for place in range(sizes.dims_each)]
        places = torch.tensor(powers, device=codes.device)
        digits = torch.div(codes.unsqueeze(-1), places, rounding_mode="floor") % sizes.levels
        half = (sizes.levels - 1) / 2
        return (digits.flatten(-2).to(self.first.weight.dtype) - half) / half

    def _sound(self, spectra: Tensor, state: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Spectra [B, T, window + 2] to samples [B, T * hop].

        Each spectrum is a piece of four hops that begins with its own hop, so a hop of sound is
        the sum of its own piece and of the three before it, which are the state.
        """
        size, phase = spectra.chunk(2, dim=-1)
        pieces = torch.fft.irfft(
            torch.polar(size.clamp(max=LOUDEST).exp(), phase), self.sizes.window
        )
        past = torch.cat((state.float(), (pieces * self.window).transpose(1, 2)), dim=2)
        hop, steps = self.sizes.hop, spectra.shape[1]
        overlap = self.sizes.window // hop
        sound = past.new_zeros(past.shape[0], hop, steps)
        for k in range(overlap):
            first = overlap - 1 - k
            sound += past[:, k * hop : (k + 1) * hop, first : first + steps]
        sound = sound.transpose(1, 2).flatten(1) / OVERLAP
        return sound, tail(past, lengths, overlap - 1)
