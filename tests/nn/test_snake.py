"""Periodic activations against their formulas."""

import math

import pytest
import torch

from voxserve.nn.snake import Snake, SnakeBeta


def test_snake() -> None:
    layer = Snake(2)
    layer.alpha.data = torch.tensor([0.5, 3.0]).view(1, 2, 1)
    out = layer(torch.tensor([[[2.0], [-1.0]]]))
    assert out[0, 0, 0].item() == pytest.approx(2 + math.sin(1.0) ** 2 / 0.5)
    assert out[0, 1, 0].item() == pytest.approx(-1 + math.sin(-3.0) ** 2 / 3)


def test_snake_beta_keeps_logarithms() -> None:
    layer = SnakeBeta(2)
    layer.alpha.data, layer.beta.data = torch.tensor([0.0, 1.0]), torch.tensor([0.0, -1.0])
    out = layer(torch.tensor([[[2.0], [0.3]]]))
    assert out[0, 0, 0].item() == pytest.approx(2 + math.sin(2.0) ** 2)
    assert out[0, 1, 0].item() == pytest.approx(0.3 + math.sin(0.3 * math.e) ** 2 * math.e)
