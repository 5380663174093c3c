"""A solver's input and its guided step, against plain torch."""

from torch.testing import assert_close

from tests.kernels.rig import ATOL, noise
from voxserve.kernels.guided_step import (
    conditioned,
    conditioned_reference,
    guided_step,
    guided_step_reference,
)


def test_the_input_equals_plain_torch() -> None:
    """Frames that fill no tile, channels that fill no power of two, a part of a wider map."""
    x, w = noise((2, 21, 80)).float(), noise((64, 320), 0.1)
    conditions = noise((2, 2, 21, 64))
    got = conditioned(x, w, conditions)
    assert_close(got, conditioned_reference(x, w, conditions), atol=ATOL, rtol=ATOL)


def test_a_step_equals_plain_torch() -> None:
    x, velocities = noise((3, 7, 80)).float(), noise((3, 2, 7, 80))
    expected = guided_step_reference(x, velocities, 0.3, 1.7)
    guided_step(x, velocities, 0.3, 1.7)
    assert_close(x, expected, atol=1e-5, rtol=1e-5)
