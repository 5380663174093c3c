"""The codec of tiny: frames of codes to audio, causal, with all memory in explicit state.

Codebook vectors are summed, a small transformer looks back over a window of frames, and
convolutions raise the rate from 12.5 Hz to 24 kHz. Every layer is causal, so any cuts of a stream
give the same audio as one shot.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.tiny.config import UNIT_KERNEL, CodecSizes
from voxserve.models.tiny.lm import layer_shape
from voxserve.nn.attention import WindowKv
from voxserve.nn.causal_conv import CausalConv1d, CausalConvTranspose1d
from voxserve.nn.rows import Rows
from voxserve.nn.rvq import rvq_decode
from voxserve.nn.snake import SnakeBeta
from voxserve.nn.transformer import DecoderLayer, RmsNorm, Rope


class Upsampling(nn.Module):
    """More columns, each mixed with what came before it (a ConvNeXt block). State: the mixing's."""

    def __init__(self, channels: int, factor: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(channels, channels, factor, stride=factor)
        self.mix = CausalConv1d(channels, channels, UNIT_KERNEL, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.widen = nn.Linear(channels, 2 * channels)
        self.narrow = nn.Linear(2 * channels, channels)
        self.factor = factor

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = self.up(x)
        mixed, after = self.mix(x, state, lengths * self.factor)
        inner = functional.gelu(self.widen(self.norm(mixed.transpose(1, 2))))
        return x + self.narrow(inner).transpose(1, 2), after


class Unit(nn.Module):
    """A residual unit: a dilated convolution between two periodic activations."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.before = SnakeBeta(channels)
        self.dilated = CausalConv1d(channels, channels, UNIT_KERNEL, dilation=dilation)
        self.between = SnakeBeta(channels)
        self.point = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        inner, after = self.dilated(self.before(x), state, lengths)
        return x + self.point(self.between(inner)), after


class Block(nn.Module):
    """A transposed convolution, then residual units at the new rate."""

    def __init__(self, inputs: int, outputs: int, rate: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.activation = SnakeBeta(inputs)
        self.up = CausalConvTranspose1d(inputs, outputs, 2 * rate, rate)
        self.units = nn.ModuleList(Unit(outputs, dilation) for dilation in dilations)
        self.rate = rate

    def forward(self, x: Tensor, lengths: Tensor, rows: Rows, name: str) -> Tensor:
        x = rows.run(f"{name}.up", self.up, self.activation(x), lengths)
        lengths = lengths * self.rate
        for number, unit in enumerate(self.units):
            x = rows.run(f"{name}.unit.{number}", unit, x, lengths)
        return x


class Codec(nn.Module):
    """books: [K, codes, code_width]."""

    def __init__(self, sizes: CodecSizes, codebooks: int, codes: int) -> None:
        super().__init__()
        hidden, shape = sizes.body.hidden, layer_shape(sizes.body, layer_scale=True)
        self.books = nn.Parameter(torch.empty(codebooks, codes, sizes.code_width))
        self.enter = CausalConv1d(sizes.code_width, hidden, 3)
        self.rope = Rope(sizes.body.head, sizes.body.theta)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(sizes.body.layers))
        self.norm = RmsNorm(hidden, sizes.body.eps)
        self.upsamplings = nn.ModuleList(Upsampling(hidden, n) for n in sizes.upsamplings)
        self.widen = CausalConv1d(hidden, sizes.channels[0], UNIT_KERNEL)
        self.blocks = nn.ModuleList(
            Block(inputs, outputs, rate, sizes.dilations)
            for inputs, outputs, rate in zip(
                sizes.channels[:-1], sizes.channels[1:], sizes.rates, strict=True
            )
        )
        self.activation = SnakeBeta(sizes.channels[-1])
        self.leave = CausalConv1d(sizes.channels[-1], 1, UNIT_KERNEL)
        self.sizes = sizes

    def forward(self, codes: Tensor, lengths: Tensor, first_frame: Tensor, rows: Rows) -> Tensor:
        """Decode codes [B, F, K] int64 and advance the rows' state.

        lengths: [B] int64 real frames; first_frame: [B] int64 frames decoded before. Codes out of
        range stand in padding only. Returns [B, F * samples_per_frame] in [-1, 1].
        """
        codes = codes.clamp(0, self.books.shape[1] - 1)
        x = rvq_decode(codes, self.books).transpose(1, 2)
        x = rows.run("enter", self.enter, x, lengths)
        x = self._look_back(x.transpose(1, 2), lengths, first_frame, rows).transpose(1, 2)
        for number, stage in enumerate(self.upsamplings):
            x = rows.run(f"upsampling.{number}", stage, x, lengths)
            lengths = lengths * self.sizes.upsamplings[number]
        x = rows.run("widen", self.widen, x, lengths)
        for number, block in enumerate(self.blocks):
            x = block(x, lengths, rows, f"block.{number}")
            lengths = lengths * self.sizes.rates[number]
        x = rows.run("leave", self.leave, self.activation(x), lengths)
        return x.squeeze(1).clamp(-1, 1)

    def _look_back(self, x: Tensor, lengths: Tensor, first: Tensor, rows: Rows) -> Tensor:
        """The transformer over frames x [B, F, hidden]."""
        positions = first[:, None] + torch.arange(x.shape[1], device=x.device)
        rope = self.rope(positions, x.dtype)
        for number, layer in enumerate(self.layers):
            attend = WindowKv(rows.take(f"window.{number}"), first, lengths, self.sizes.window)
            x = layer(x, rope, attend)
            rows.put(f"window.{number}", attend.after)
        out: Tensor = self.norm(x)
        return out
