"""Plans divide what they cut, fit a GPU's shared memory, and follow rows and SMs as they should."""

import pytest
import torch

from voxserve.kernels import tiles
from voxserve.kernels.linear_plans import Kind, plan
from voxserve.nn.fused_stack import arrivals

SHARED_BYTES = 227 * 1024
MAPS: list[tuple[Kind, int, int]] = [
    ("linear", 4096, 2048),
    ("linear", 3072, 2048),
    ("residual", 2048, 6144),
    ("residual", 1024, 2048),
    ("gate_up", 6144, 2048),
    ("gate_up", 3072, 1024),
]


@pytest.mark.parametrize("rows", [1, 16, 64, 128, 256, 512])
@pytest.mark.parametrize("sms", [132, 100, 84, 148])
@pytest.mark.parametrize(("kind", "columns", "depth"), MAPS)
def test_a_plan_fits(kind: Kind, columns: int, depth: int, sms: int, rows: int) -> None:
    with tiles.on_sms(sms):
        cut = plan(kind, columns, depth, rows)
    assert columns % cut.columns == 0 and depth % (cut.depth * cut.split) == 0
    assert max(rows, 16) % cut.rows == 0
    assert cut.split == 1 or kind == "residual"
    width = cut.columns * (2 if kind == "gate_up" else 1)
    assert cut.stages * (cut.rows + width) * cut.depth * 2 <= SHARED_BYTES


@pytest.mark.parametrize(("kind", "columns", "depth"), MAPS)
def test_fixed_plans_are_all_one(kind: Kind, columns: int, depth: int) -> None:
    found = set()
    for sms in (132, 100):
        for rows in (1, 64, 256):
            with tiles.on_sms(sms), tiles.fixed_tiles():
                found.add(plan(kind, columns, depth, rows))
    assert len(found) == 1


@pytest.mark.parametrize("rows", [64, 1024, 8 * 1024, 64 * 1024])
@pytest.mark.parametrize(("columns", "depth"), [(2048, 6144), (2048, 2048), (1024, 2048)])
def test_every_tile_of_a_prefill_has_its_counter(columns: int, depth: int, rows: int) -> None:
    with tiles.fixed_tiles():
        cut = plan("residual", columns, depth, rows)
    count = rows // cut.rows * (columns // cut.columns)
    assert count <= len(arrivals(torch.zeros(1), rows * columns))


def test_a_smaller_partition_gets_other_tiles() -> None:
    plans = []
    for sms in (132, 32):
        with tiles.on_sms(sms):
            plans.append(plan("residual", 2048, 6144, 64))
    assert plans[0] != plans[1]
