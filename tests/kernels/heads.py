"""Heads of a small layer, as attention kernels want them."""

import torch
from torch import Tensor

from tests.kernels.rig import DEVICE, noise
from voxserve.kernels.heads import Heads
from voxserve.kernels.stream import Stream, reference_stream

EPS = 1e-6


def heads(positions: int = 64, size: int = 32) -> Heads:
    angles = torch.outer(torch.arange(positions), 100.0 ** -(torch.arange(size // 2) / size * 2))
    return Heads(
        4,
        2,
        noise((size,), 0.3, seed=3) + 1,
        noise((size,), 0.3, seed=4) + 1,
        angles.cos().to(DEVICE),
        angles.sin().to(DEVICE),
        EPS,
        64,
    )


def qkv(rows: int, size: int = 32) -> tuple[Tensor, Stream]:
    """The fused product of a stream, and the stream, whose scale still has to be applied."""
    residual = noise((rows, 64), 2.0).float()
    stream = reference_stream(residual, noise((64,), 0.0) + 1, 2, noise((1,)).dtype)
    return noise((rows, 8 * size), 3.0), stream
