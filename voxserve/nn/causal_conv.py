"""Causal convolutions that stream: the same numbers whatever the cuts.

Each layer keeps the last input columns that its next output needs, in a tensor that the caller
owns. A zero state is the start of a sound. `lengths` says how many of the step's input columns are
real in each row; the columns behind them are computed and must be ignored, and the new state is
the one behind the real columns.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.nn.attention import tail


class CausalConv1d(nn.Module):
    """Conv1d, stride 1, padded on the left with what came before. Parameters live in `conv`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation, groups=groups, bias=bias)
        self.state_shape = (inputs, (kernel - 1) * dilation)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, inputs, T], state [B, inputs, (kernel - 1) * dilation], lengths [B] int64.

        Returns ([B, outputs, T], the new state). With a kernel of 1 the state is empty.
        """
        size = self.state_shape[1]
        if size == 0:
            return self.conv(x), state
        x = torch.cat((state.to(x.dtype), x), dim=2)
        return self.conv(x), tail(x, lengths, size)


class CausalConvTranspose1d(nn.Module):
    """ConvTranspose1d that emits T * stride columns for T inputs, trimmed on the right only.

    kernel: a multiple of the stride. State: the last kernel / stride - 1 input columns.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        if kernel % stride:
            raise ValueError(f"kernel {kernel} is not a multiple of the stride {stride}")
        self.conv = nn.ConvTranspose1d(inputs, outputs, kernel, stride=stride)
        self.stride = stride
        self.state_shape = (inputs, kernel // stride - 1)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, inputs, T], state [B, inputs, kernel / stride - 1], lengths [B] int64 of inputs.

        Returns ([B, outputs, T * stride], the new state).
        """
        size, steps = self.state_shape[1], x.shape[2]
        if size:
            x = torch.cat((state.to(x.dtype), x), dim=2)
            state = tail(x, lengths, size)
        first = size * self.stride
        out: Tensor = self.conv(x)
        return out[:, :, first : first + steps * self.stride], state


class Streamed(Protocol):
    """A layer that streams: (input, state [B, *state_shape], lengths) -> (output, new state)."""

    state_shape: tuple[int, int]

    def __call__(self, x: Tensor, state: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]: ...


class Memory:
    """The states of one step's layers: cut from a flat tensor [B, N] in the order of use.

    lengths: [B] int64, real frames of this step. `after` is the flat tensor behind them, of the
    same type.
    """

    def __init__(self, flat: Tensor, lengths: Tensor) -> None:
        self.flat = flat
        self.lengths = lengths
        self.used = 0
        self.new: list[Tensor] = []

    def run(self, layer: Streamed, x: Tensor, columns: int) -> Tensor:
        """Apply `layer` to x [B, C, T], which has `columns` columns a frame."""
        out, after = layer(x, self._take(*layer.state_shape), self.lengths * columns)
        self.new.append(after.flatten(1))
        return out

    def extend(self, x: Tensor, size: int, columns: int) -> Tensor:
        """x [B, C, T], which has `columns` columns a frame, with the `size` columns that came
        before it in front: [B, C, size + T]."""
        x = torch.cat((self._take(x.shape[1], size).to(x.dtype), x), dim=2)
        self.new.append(tail(x, self.lengths * columns, size).flatten(1))
        return x

    def _take(self, channels: int, size: int) -> Tensor:
        end = self.used + channels * size
        state = self.flat[:, self.used : end].reshape(len(self.flat), channels, size)
        self.used = end
        return state

    @property
    def after(self) -> Tensor:
        return torch.cat(self.new, dim=1).to(self.flat.dtype)


def reflect_pad(x: Tensor, lengths: Tensor, left: int, right: int) -> Tensor:
    """Mirror x [B, C, T] at its first column and at each row's last real one.

    lengths: [B] int64, at least max(left, right) + 1. Returns [B, C, left + T + right], right
    behind each row's own end; what follows is unspecified. Matches `pad(mode="reflect")` of the
    row cut to its length.
    """
    place = torch.arange(-left, x.shape[2] + right, device=x.device).abs()
    last = lengths[:, None] - 1
    index = torch.where(place > last, 2 * last - place, place).clamp(min=0)
    return x.gather(2, index[:, None].expand(-1, x.shape[1], -1))


def masked(x: Tensor, lengths: Tensor) -> Tensor:
    """x [B, ..., T] with zeros from column `lengths` [B] on."""
    place = torch.arange(x.shape[-1], device=x.device)
    keep = place < lengths.view(-1, *([1] * (x.dim() - 1)))
    return torch.where(keep, x, x.new_zeros(()))


def strided(x: Tensor, conv: nn.Conv1d, stride: int) -> Tensor:
    """A causal strided convolution of a whole sound x [B, C, T]: zeros before it, and behind it up
    to a multiple of the stride. Returns [B, C', ceil(T / stride)]."""
    kernel = conv.kernel_size[0]
    extra = -x.shape[2] % stride
    return functional.conv1d(
        functional.pad(x, (kernel - stride, extra)), conv.weight, conv.bias, stride=stride
    )
