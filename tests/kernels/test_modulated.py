"""Maps between modulated norms and gated sums, against plain torch."""

import pytest
import torch
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, noise
from voxserve.kernels.linear_plans import Plan
from voxserve.kernels.modulated import (
    enter,
    gated_linear,
    gated_linear_reference,
    normed_linear,
    normed_linear_reference,
    plan,
    table,
)
from voxserve.kernels.tiles import on_sms

EPS = 1e-6


@pytest.mark.parametrize(("rows", "gelu"), [(5, False), (70, True)])
def test_a_layer_equals_plain_torch(rows: int, gelu: bool) -> None:
    """A map behind an entered stream, a gated one onto it, and a map behind that; rows that fill no
    tile, a mean that is not small, and a time that is not the first."""
    width, inner = 64, 96
    y = noise((rows, width), 2.0) + 3.0
    scales, shifts = noise((2, 2, width), 0.3) + 1, noise((2, 2, width), seed=1)
    first, second = noise((inner, width), 0.1), noise((32, width), 0.1)
    bias, out_bias, last_bias = noise((inner,)), noise((width,)), noise((32,))
    back, gate = noise((width, inner), 0.1), noise((width,), seed=2)
    stream = enter(y, scales[1, 0])
    assert_close(stream.residual, y.float())
    behind = table(first, bias, scales[:, 0], shifts[:, 0])[1]
    widened = normed_linear(stream, first, behind, EPS, gelu=gelu)
    expected = normed_linear_reference(
        y.float(), first, bias, scales[1, 0], shifts[1, 0], EPS, gelu
    )
    assert_close(widened.float(), expected, atol=2 * ATOL, rtol=ATOL)
    cut = Plan(64, 16, 32)  # several parts of moments
    residual = gated_linear_reference(widened, back, out_bias, gate, stream.residual)
    stream = gated_linear(widened, back, out_bias, gate, stream, scales[1, 1], tiles=cut)
    assert_close(stream.residual, residual, atol=ATOL, rtol=ATOL)
    behind = table(second, last_bias, scales[:, 1], shifts[:, 1])[1]
    got = normed_linear(stream, second, behind, EPS)
    expected = normed_linear_reference(
        stream.residual, second, last_bias, scales[1, 1], shifts[1, 1], EPS, False
    )
    assert_close(got.float(), expected, atol=2 * ATOL, rtol=ATOL)
    assert got.shape == (rows, 32) and got.device.type == torch.device(DEVICE).type


def test_tiles_fit_and_are_smaller_where_there_are_few_rows() -> None:
    for rows in (100, 200, 400, 800, 1600, 3000):
        for columns in (80, 1024, 2048, 3072):
            with on_sms(88):
                cut = plan(rows, columns, 1024)
            assert columns % cut.columns == 0
            assert (cut.rows + cut.columns) * cut.depth * 2 * cut.stages <= 227 * 1024
    assert plan(100, 1024, 1024).columns < plan(1600, 1024, 1024).columns
