"""Plans divide what they cut, fit a GPU's shared memory, and follow rows and SMs as they should."""

import pytest
import torch

from voxserve.engine.executables import step_ladder
from voxserve.kernels import linear_plans, tiles
from voxserve.kernels.linear_plans import MEASURED_ROWS, Kind, Plan, measured, plan
from voxserve.kernels.linear_table import MEASURED
from voxserve.kernels.stream import padded
from voxserve.nn.fused_stack import arrivals

SHARED_BYTES = 227 * 1024
Table = dict[tuple[str, int, int, int, int], tuple[int, int, int, int, int, int]]
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


@pytest.mark.parametrize("sms", [132, 124, 100, 92, 84, 44, 148])
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
        assert cut.rows >= 16 and high % cut.rows == 0
        assert high <= 64 or cut.rows >= 32
        assert cut.split == 1 or kind == "residual"
        width = cut.columns * width_of
        assert cut.stages * (cut.rows + width) * cut.depth * 2 <= SHARED_BYTES
        tile_count = high // cut.rows * (columns // cut.columns)
        assert kind != "residual" or tile_count <= len(arrivals(torch.zeros(1)))


def test_rows_that_nobody_measured_take_their_neighbours_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the next more, halved till they divide; of the most where there are no more; of none that
    have fewer than 64."""
    table: Table = {}
    monkeypatch.setattr(linear_plans, "MEASURED", table)
    at: tuple[Kind, int, int] = ("linear", 4096, 2048)
    table |= {(*at, 32, 100): (32, 64, 64, 1, 7, 4), (*at, 256, 100): (128, 128, 64, 1, 4, 8)}
    assert measured(*at, 192, 100) == Plan(64, 128, 64, 1, 4, 8)
    assert measured(*at, 512, 100) == Plan(128, 128, 64, 1, 4, 8)
    assert measured(*at, 64, 100) is None and measured(*at, 1024, 100) is None


def test_a_neighbours_tiles_are_left_where_they_fill_the_sms_worse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """96 programs are one round on 100 SMs and on 96, two on 92."""
    table: Table = {}
    monkeypatch.setattr(linear_plans, "MEASURED", table)
    at: tuple[Kind, int, int] = ("gate_up", 6144, 2048)
    table[*at, 64, 100] = (64, 64, 128, 1, 4, 4)
    assert measured(*at, 64, 96) == measured(*at, 64, 108) == Plan(64, 64, 128, 1, 4, 4)
    assert measured(*at, 64, 92) is None and measured(*at, 64, 109) is None
    # 192 programs of 128 rows are two rounds on 100 SMs and three on 92; 288 of 64 take four there.
    table[*at, 256, 100] = (128, 64, 64, 1, 3, 4)
    assert measured(*at, 256, 92) is None
    assert measured(*at, 192, 92) == Plan(64, 64, 64, 1, 3, 4)
    table[*at, 256, 92] = table[*at, 192, 84] = (64, 64, 64, 1, 4, 4)
    assert measured(*at, 256, 92) == Plan(64, 64, 64, 1, 4, 4)


def test_the_exact_count_of_sms_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    table: Table = {}
    monkeypatch.setattr(linear_plans, "MEASURED", table)
    at: tuple[Kind, int, int] = ("linear", 4096, 2048)
    cuts = {sms: (64, 64, 64, 1, stages, 4) for stages, sms in enumerate((84, 92, 100), 2)}
    table |= {(*at, 64, sms): cut for sms, cut in cuts.items()}
    assert [measured(*at, 64, sms) for sms in (84, 92, 100, 90)] == [
        Plan(*cuts[sms]) for sms in (84, 92, 100, 92)
    ]


def test_what_was_measured_divides_its_rows() -> None:
    for (*_, rows, _), cut in MEASURED.items():
        assert rows in MEASURED_ROWS and rows % cut[0] == 0


def test_more_rows_take_no_more_rounds_than_by_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 320 rows: 480 programs in four rounds, as by the rule; 320 in three, by the rule one."""
    wide: tuple[Kind, int, int] = ("gate_up", 6144, 2048)
    narrow: tuple[Kind, int, int] = ("linear", 2048, 1024)
    table: Table = {(*wide, 256, 132): (64, 64, 64, 1, 4, 4)}
    table[*narrow, 256, 132] = (64, 32, 64, 1, 8, 4)
    monkeypatch.setattr(linear_plans, "MEASURED", table)
    assert measured(*wide, 320, 132) == Plan(64, 64, 64, 1, 4, 4)
    assert measured(*narrow, 320, 132) is None


@pytest.mark.parametrize(("kind", "columns", "depth"), MAPS)
def test_fixed_plans_are_all_one(kind: Kind, columns: int, depth: int) -> None:
    found = set()
    for sms in (132, 100):
        for rows in (1, 64, 192, 256):
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
