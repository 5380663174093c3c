"""The convolutions of the DAC codec (Kumar et al., 2023), which are not causal.

Parameter names are those that transformers gives `DacModel`. Weight norm is already folded in, as
in the files that are published in that layout. A convolution looks past the end of a sound and
finds zeros there, in every layer anew. So all layers here take what is real as a mask, and keep
what is not at zero: a padded row then gives what its real part gives alone.
"""

import math

import torch
from torch import Tensor, nn

from voxserve.nn.snake import Snake

DILATIONS = (1, 3, 9)
KERNEL = 7
_REACH = KERNEL // 2
_UNITS_REACH = _REACH * sum(DILATIONS)


class ResidualUnit(nn.Module):
    """Snake, dilated convolution, Snake, pointwise convolution, added to the input."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        padding = _REACH * dilation
        self.snake1 = Snake(width)
        self.conv1 = nn.Conv1d(width, width, KERNEL, dilation=dilation, padding=padding)
        self.snake2 = Snake(width)
        self.conv2 = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """x [B, width, T], zero where `real` [B, 1, T] is false -> the same."""
        y = self.conv2(self.snake2(self.conv1(self.snake1(x))))
        return _keep(x + y, real)


class DecoderBlock(nn.Module):
    """Snake, a transposed convolution that halves the channels, three residual units."""

    def __init__(self, width: int, rate: int) -> None:
        super().__init__()
        half = width // 2
        self.rate = rate
        self.snake1 = Snake(width)
        self.conv_t1 = nn.ConvTranspose1d(
            width, half, 2 * rate, rate, padding=math.ceil(rate / 2), output_padding=rate % 2
        )
        self.res_unit1 = ResidualUnit(half, DILATIONS[0])
        self.res_unit2 = ResidualUnit(half, DILATIONS[1])
        self.res_unit3 = ResidualUnit(half, DILATIONS[2])

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """x [B, width, T] -> [B, width / 2, T * rate]; `real` is the output's."""
        x = _keep(self.conv_t1(self.snake1(x)), real)
        out: Tensor = self.res_unit3(self.res_unit2(self.res_unit1(x, real), real), real)
        return out


class Decoder(nn.Module):
    """Latents to a waveform. width: channels before the first block."""

    def __init__(self, latent: int, width: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.rates = rates
        self.conv1 = nn.Conv1d(latent, width, KERNEL, padding=_REACH)
        blocks = [DecoderBlock(width >> place, rate) for place, rate in enumerate(rates)]
        self.block = nn.ModuleList(blocks)
        last = width >> len(rates)
        self.snake1 = Snake(last)
        self.conv2 = nn.Conv1d(last, 1, KERNEL, padding=_REACH)
        self._context = _contexts(rates)

    @property
    def context(self) -> int:
        """Frames on either side that the samples of a frame depend on."""
        return self._context[0] + _REACH

    def forward(self, x: Tensor, real: Tensor, left: int, right: int) -> Tensor:
        """x [B, latent, L] with `left` and `right` frames of context around what is wanted.

        real: [B, L] bool, frames that exist. Returns [B, (L - left - right) * hop]: that of a
        decode of all frames at once where left and right are `context` at least or the sound ends
        earlier. Each block computes only as much context as the blocks behind it need.
        """
        real = real[:, None]
        x = _keep(self.conv1(_keep(x, real)), real)
        for block, rate, context in zip(self.block, self.rates, self._context, strict=True):
            x, real, left, right = _crop(x, real, left, right, context)
            real = real.repeat_interleave(rate, dim=2)
            left, right = left * rate, right * rate
            x = block(x, real)
        x, real, left, right = _crop(x, real, left, right, _REACH)
        x = self.conv2(self.snake1(x))
        return _keep(x, real)[:, 0, left : x.shape[2] - right]


class EncoderBlock(nn.Module):
    """Three residual units, Snake, a strided convolution that doubles the channels."""

    def __init__(self, width: int, rate: int) -> None:
        super().__init__()
        self.rate = rate
        self.res_unit1 = ResidualUnit(width, DILATIONS[0])
        self.res_unit2 = ResidualUnit(width, DILATIONS[1])
        self.res_unit3 = ResidualUnit(width, DILATIONS[2])
        self.snake1 = Snake(width)
        self.conv1 = nn.Conv1d(width, 2 * width, 2 * rate, rate, padding=math.ceil(rate / 2))

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        real = _real(x, lengths)
        x = self.res_unit3(self.res_unit2(self.res_unit1(x, real), real), real)
        x = self.conv1(self.snake1(x))
        lengths = (lengths + self.rate % 2) // self.rate
        return _keep(x, _real(x, lengths)), lengths


class Encoder(nn.Module):
    """A waveform to latents. width: channels before the first block."""

    def __init__(self, width: int, latent: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(1, width, KERNEL, padding=_REACH)
        blocks = [EncoderBlock(width << place, rate) for place, rate in enumerate(rates)]
        self.block = nn.ModuleList(blocks)
        last = width << len(rates)
        self.snake1 = Snake(last)
        self.conv2 = nn.Conv1d(last, latent, 3, padding=1)

    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """audio [B, T], lengths [B] int64 samples -> (latents [B, latent, F], frames [B])."""
        x = audio[:, None]
        real = _real(x, lengths)
        x = _keep(self.conv1(_keep(x, real)), real)
        for block in self.block:
            x, lengths = block(x, lengths)
        x = self.conv2(self.snake1(x))
        return _keep(x, _real(x, lengths)), lengths


def _contexts(rates: tuple[int, ...]) -> tuple[int, ...]:
    """Columns of context that each block's input needs, in columns of that input."""
    need, found = _REACH, []
    for rate in reversed(rates):
        need = (need + _UNITS_REACH + rate + math.ceil(rate / 2) - 1) // rate
        found.append(need)
    return tuple(reversed(found))


def _crop(
    x: Tensor, real: Tensor, left: int, right: int, context: int
) -> tuple[Tensor, Tensor, int, int]:
    """Leave no more context on either side than `context` columns."""
    first, last = max(left - context, 0), max(right - context, 0)
    keep = slice(first, x.shape[2] - last)
    return x[:, :, keep], real[:, :, keep], left - first, right - last


def _real(x: Tensor, lengths: Tensor) -> Tensor:
    """[B, 1, T] bool: the columns of x [B, C, T] before `lengths` [B]."""
    return (torch.arange(x.shape[2], device=x.device) < lengths[:, None])[:, None]


def _keep(x: Tensor, real: Tensor) -> Tensor:
    return torch.where(real, x, x.new_zeros(()))
