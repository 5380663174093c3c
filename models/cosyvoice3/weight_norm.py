"""Causal convolutions stored as a direction and a length (weight norm), folded once loaded."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.nn.attention import tail


class Stored(nn.Module):
    """original0: lengths [outputs, 1, 1]; original1: directions [outputs, inputs, kernel]."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.original0 = nn.Parameter(torch.ones(outputs, 1, 1))
        self.original1 = nn.Parameter(torch.zeros(outputs, inputs, kernel))

    def folded(self) -> Tensor:
        norms = torch.linalg.vector_norm(self.original1, dim=(1, 2), keepdim=True)
        weight: Tensor = self.original1 * (self.original0 / norms)
        return weight


class NormedConv(nn.Module):
    """A causal Conv1d that streams (see `voxserve.nn.causal_conv`); call `finish` before use."""

    weight: Tensor

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.parametrizations = nn.ModuleDict({"weight": Stored(inputs, outputs, kernel)})
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.dilation = dilation
        self.state_shape = (inputs, (kernel - 1) * dilation)

    @torch.no_grad()
    def finish(self) -> None:
        stored = self.parametrizations["weight"]
        assert isinstance(stored, Stored)
        weight = stored.folded()
        del self.parametrizations
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, inputs, T], state [B, inputs, (kernel - 1) * dilation], lengths [B] int64."""
        x = torch.cat((state.to(x.dtype), x), dim=2)
        out = functional.conv1d(x, self.weight, self.bias, dilation=self.dilation)
        return out, tail(x, lengths, self.state_shape[1])

    def ahead(self, x: Tensor) -> Tensor:
        """The same weights looking forward instead of back, with zeros behind x."""
        x = functional.pad(x, (0, self.state_shape[1]))
        return functional.conv1d(x, self.weight, self.bias, dilation=self.dilation)


class UpsampleConv(NormedConv):
    """Repeats each column `rate` times, then convolves; folded into one convolution of the columns
    as they came, with an output for each of the `rate` phases: a fifth of the work."""

    def __init__(self, inputs: int, outputs: int, kernel: int, rate: int) -> None:
        super().__init__(inputs, outputs, kernel)
        self.rate = rate
        self.taps = (kernel - 1 + rate - 1) // rate + 1
        self.state_shape = (inputs, self.taps - 1)

    @torch.no_grad()
    def finish(self) -> None:
        super().finish()
        outputs, inputs, kernel = self.weight.shape
        folded = self.weight.new_zeros(self.rate, outputs, inputs, self.taps)
        for phase in range(self.rate):
            for tap in range(kernel):
                column = (phase - (kernel - 1) + tap) // self.rate + self.taps - 1
                folded[phase, :, :, column] += self.weight[:, :, tap]
        self.weight = folded.flatten(0, 1)
        self.bias = nn.Parameter(self.bias.repeat(self.rate), requires_grad=False)

    def forward(self, x: Tensor, state: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, inputs, T] -> ([B, outputs, T * rate], the new state)."""
        out, after = super().forward(x, state, lengths)
        phases = out.view(len(x), self.rate, -1, x.shape[2])
        return phases.permute(0, 2, 3, 1).flatten(2), after
