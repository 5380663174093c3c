"""What the kernel tests share: the device at hand and inputs that are the same on every run.

Without a GPU the kernels run in Triton's interpreter in float32, so that only the order of
additions may differ; on a GPU in bfloat16, whose products of inputs of size one round at 2⁻⁸.
"""

import torch
from torch import Tensor

from voxserve.kernels.snake import SnakeWeights

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
DTYPE = torch.bfloat16 if GPU else torch.float32
ATOL = 4e-2 if GPU else 2e-5


def noise(shape: tuple[int, ...], size: float = 1.0, seed: int | None = None) -> Tensor:
    """Normal values; of one seed, by default the shape's."""
    generator = torch.Generator().manual_seed(sum(shape) if seed is None else seed)
    return (torch.randn(shape, generator=generator) * size).to(DEVICE, DTYPE)


def snake_weights(channels: int) -> SnakeWeights:
    frequency = noise((channels,), 0.3, seed=7).float().exp()
    return SnakeWeights(frequency, 1.0 / (noise((channels,), 0.3, seed=8).float().exp() + 1e-9))
