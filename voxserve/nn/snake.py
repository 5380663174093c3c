"""Periodic activations of neural vocoders, one frequency per channel."""

import torch
from torch import Tensor, nn


class Snake(nn.Module):
    """x + sin²(a x) / a over x [B, C, T] (Ziyin et al., 2020); `alpha` is [1, C, 1], as in DAC."""

    def __init__(self, channels: int, eps: float = 1e-9) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sin(self.alpha * x).pow(2) / (self.alpha + self.eps)


class SnakeBeta(nn.Module):
    """x + sin²(x eᵅ) / (eᵝ + eps) over x [B, C, T], as in BigVGAN; `alpha` and `beta` [C] are
    logarithms."""

    def __init__(self, channels: int, eps: float = 1e-9) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(channels))
        self.beta = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        frequency = self.alpha.exp()[:, None]
        size = 1.0 / (self.beta.exp()[:, None] + self.eps)
        return x + size * torch.sin(x * frequency).pow(2)
