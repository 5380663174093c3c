"""Plans divide what they cut, fit a GPU's shared memory, and follow rows and SMs as they should."""

import pytest
import torch

from voxserve.engine.executables import step_ladder
from voxserve.kernels import tiles
from voxserve.kernels.linear_plans import Kind, Plan, measured, plan
from voxserve.kernels.linear_table import MEASURED
from voxserve.kernels.stream import padded
from voxserve.nn.fused_stack import arrivals

SHARED_BYTES = 227 * 1024
MAPS: list[tuple[Kind, int, int]] = [
    ("linear", 4096, 2048),
    ("linear", 3072, 2048),
    ("linear", 4096, 1024),
    ("linear", 3072, 1024),
    ("linear", 2048, 1024),
    ("linear", 1024, 2048),
    ("residual", 2048, 2048),
    ("residual", 2048, 6144),
    ("residual", 1024, 2048),
    ("residual", 1024, 3072),
    ("gate_up", 6144, 2048),
    ("gate_up", 3072, 1024),
    ("linear", 6144, 2560),
    ("linear", 8208, 2560),
    ("residual", 2560, 4096),
    ("residual", 2560, 9728),
    ("gate_up", 9728, 2560),
    ("linear", 1152, 896),
    ("residual", 896, 896),
    ("residual", 896, 4864),
    ("gate_up", 4864, 896),
]
"""Of all models."""


@pytest.mark.parametrize("sms", [132, 100, 88, 84, 148])
@pytest.mark.parametrize(("kind", "columns", "depth"), MAPS)
def test_a_plan_fits(kind: Kind, columns: int, depth: int, sms: int) -> None:
    """At every bucket of decode steps, and at twice its rows, as the depth stack begins."""
    width_of = 2 if kind == "gate_up" else 1
    for rows in {count * times for count in step_ladder(512) for times in (1, 2)}:
        with tiles.on_sms(sms):
            cut, high = plan(kind, columns, depth, rows), padded(rows)
        assert columns % cut.columns == 0 and depth % (cut.depth * cut.split) == 0
        assert cut.columns >= 16 and cut.depth >= 16
        assert all(size & (size - 1) == 0 for size in (cut.rows, cut.columns, cut.depth))
        # Of the last tile at least a quarter is rows.
        assert cut.rows >= 16 and (-high) % cut.rows <= cut.rows * 3 // 4
        assert high <= 64 or cut.rows >= 32
        assert cut.split == 1 or kind == "residual"
        width = cut.columns * width_of
        assert cut.stages * (cut.rows + width) * cut.depth * 2 <= SHARED_BYTES
        tile_count = -(-high // cut.rows) * (columns // cut.columns)
        assert kind != "residual" or tile_count <= len(arrivals(torch.zeros(1)))


def test_rows_that_nobody_measured_take_their_neighbours_tiles() -> None:
    """Of the next more; of the most where there are no more."""
    at: tuple[Kind, int, int] = ("linear", 4096, 2048)
    known = {rows: Plan(*MEASURED[*at, rows, 100]) for rows in (128, 256)}
    assert measured(*at, 320, 96) == known[256]
    assert measured(*at, 100, 60) is None and measured(*at, 1024, 100) is None


@pytest.mark.parametrize(("kind", "columns", "depth"), MAPS)
def test_fixed_plans_are_all_one(kind: Kind, columns: int, depth: int) -> None:
    found = set()
    for sms in (132, 100):
        for rows in (1, 64, 96, 224, 256):
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
