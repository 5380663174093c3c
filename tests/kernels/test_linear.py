"""Linear maps and what is fused into them, at all kinds of tiles."""

import pytest
import torch

from tests.kernels.rig import ATOL, DEVICE, noise
from voxserve.kernels.linear import (
    gate_up,
    linear,
    reference_gate_up,
    reference_linear,
    residual,
)
from voxserve.kernels.linear_plans import Plan
from voxserve.kernels.stream import Stream, reference_scale, reference_stream

EPS = 1e-6
PLANS = {
    "one row of tiles": Plan(32, 64, 32, 1, 2),
    "two": Plan(16, 32, 64, 1, 3),
    "split": Plan(16, 64, 32, 4, 2),
}


def stream(rows: int, hidden: int, parts: int = 4) -> Stream:
    start = noise((rows, hidden), 1.5).float()
    return reference_stream(start, noise((hidden,), 0.3, seed=1) + 1, parts, noise((1,)).dtype)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_linear(plan: Plan) -> None:
    x, w, bias = stream(32, 128), noise((192, 128), 0.1), noise((192,))
    got = linear(x.x, w, bias=bias, squares=x.squares, eps=EPS, dtype=torch.float32, tiles=plan)
    wanted = reference_linear(x.x, w, bias, reference_scale(x, EPS))
    torch.testing.assert_close(got, wanted, atol=ATOL, rtol=ATOL)
    torch.testing.assert_close(
        linear(x.x, w, tiles=plan).float(), reference_linear(x.x, w), atol=ATOL, rtol=ATOL
    )


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_gate_up(plan: Plan) -> None:
    x, w = stream(32, 128), noise((384, 128), 0.1)
    got = gate_up(x, w, EPS, plan).float()
    torch.testing.assert_close(got, reference_gate_up(x, w, EPS), atol=ATOL, rtol=ATOL)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_residual(plan: Plan) -> None:
    """In place, with the next norm's gain and sums of squares; the counters are left at zero."""
    a, w, start = noise((32, 256)), noise((128, 256), 0.1), stream(32, 128)
    gain = noise((128,), 0.3, seed=2) + 1
    arrived = torch.zeros(64, dtype=torch.int32, device=DEVICE)
    total = start.residual + reference_linear(a, w)
    wanted = reference_stream(total, gain, 128 // plan.columns, a.dtype)
    got = residual(a, w, start, gain, arrived, plan)
    assert got.residual is start.residual and got.x is start.x
    for mine, theirs in ((got.residual, wanted.residual), (got.x, wanted.x)):
        torch.testing.assert_close(mine, theirs, atol=ATOL, rtol=ATOL)
    torch.testing.assert_close(got.squares, wanted.squares, atol=ATOL, rtol=ATOL)
    assert not arrived.any()


@pytest.mark.parametrize("rows", [16, 64])
def test_a_row_does_not_depend_on_the_others(rows: int) -> None:
    """Bit for bit, where the tiles are the same."""
    plan = Plan(16, 64, 32, 2, 2)
    a, w = noise((rows, 256)), noise((128, 256), 0.1)
    gain = torch.ones(128, device=DEVICE, dtype=a.dtype)
    arrived = torch.zeros(64, dtype=torch.int32, device=DEVICE)
    alone = stream(16, 128).rows(0, 16)
    many = Stream(
        *(part.repeat(rows // 16, 1) for part in (alone.x, alone.residual, alone.squares))
    )
    all_rows = residual(a, w, many, gain, arrived, plan)
    few = residual(a[:16].contiguous(), w, alone, gain, arrived, plan)
    assert torch.equal(all_rows.residual[:16], few.residual)
