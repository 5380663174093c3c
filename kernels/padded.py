"""Activations of causal convolutions: channels last, each row with its left context in front.

A dilated causal convolution over such a buffer is a sum over taps of plain products of row-shifted
matrices, with no bounds to test: out[r] = sum over k of W[k] x[r + k * dilation].
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Padded:
    """data: [rows * (left + steps), channels], contiguous. The first `left` of each row's columns
    are what came before the step."""

    data: Tensor
    rows: int
    left: int
    steps: int

    @classmethod
    def zeros(
        cls, rows: int, left: int, steps: int, channels: int, *, device: str, dtype: torch.dtype
    ) -> "Padded":
        data = torch.zeros(rows * (left + steps), channels, device=device, dtype=dtype)
        return cls(data, rows, left, steps)

    @property
    def stride(self) -> int:
        """Columns from one row's first to the next row's first."""
        return self.left + self.steps

    @property
    def channels(self) -> int:
        return self.data.shape[1]

    @property
    def whole(self) -> Tensor:
        """[rows, left + steps, channels], a view."""
        return self.data.view(self.rows, self.stride, self.channels)

    @property
    def step(self) -> Tensor:
        """[rows, steps, channels], a view without the left context."""
        return self.whole[:, self.left :]
