"""A gated residual and the norm behind it, against plain torch."""

import pytest
from torch.testing import assert_close

from tests.kernels.rig import ATOL, noise
from voxserve.kernels.gated_norm import gated_norm, gated_norm_reference


@pytest.mark.parametrize("channels", [128, 96])
def test_gated_norm_equals_plain_torch(channels: int) -> None:
    x, y = noise((3, 5, channels)), noise((3, 5, channels), seed=1)
    gate, weight, bias = (noise((channels,), seed=seed) for seed in (2, 3, 4))
    sums, normed = gated_norm_reference(x, y, gate, weight, bias, 1e-6)
    gated_norm(x, y, gate, weight, bias, y, 1e-6)
    assert_close(x, sums, atol=ATOL, rtol=ATOL)
    assert_close(y, normed, atol=ATOL, rtol=ATOL)
