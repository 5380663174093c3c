"""Depthwise convolution with LayerNorm against torch."""

import pytest
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, DTYPE, noise
from voxserve.kernels.depthwise_norm import depthwise_norm, depthwise_norm_reference
from voxserve.kernels.padded import Padded


@pytest.mark.parametrize("channels", [64, 96])
def test_depthwise_norm(channels: int) -> None:
    """96 channels leave a part of the block empty, which must not enter mean and variance."""
    x = Padded.zeros(2, 6, 5, channels, device=DEVICE, dtype=DTYPE)
    x.data.copy_(noise(x.data.shape) + 1)
    weight, bias = noise((7, channels)).float(), noise((channels,)).float()
    out = Padded.zeros(2, 0, 5, channels, device=DEVICE, dtype=DTYPE)
    depthwise_norm(x, weight, bias, 1e-6, out)
    expected = depthwise_norm_reference(x, weight, bias, 1e-6)
    assert_close(out.whole, expected, atol=ATOL, rtol=ATOL)
