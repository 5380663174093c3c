"""State of a launch's rows: gathered, zeroed where fresh, put back in place."""

import torch
from torch import Tensor

from voxserve.nn.rows import Rows, put_rows

SPARE = 4


def state() -> dict[str, Tensor]:
    return {"codec.a": torch.arange(10.0).view(5, 2), "other": torch.zeros(5)}


def test_rows_come_in_the_order_of_the_launch_and_fresh_ones_are_zero() -> None:
    held = state()
    held["codec.a"][3, 0] = torch.nan
    rows = Rows(held, "codec.", torch.tensor([3, 0, 1]), torch.tensor([True, False, False]))
    taken = rows.take("a")
    assert taken.tolist() == [[0, 0], [0, 1], [2, 3]]
    taken += 1
    assert held["codec.a"][0].tolist() == [0, 1]


def test_put_writes_in_place_and_nowhere_else() -> None:
    held = state()
    kept = held["codec.a"]
    rows = Rows(held, "codec.", torch.tensor([3, SPARE, SPARE]), torch.zeros(3, dtype=torch.bool))
    rows.put("a", torch.full((3, 2), 9.0, dtype=torch.float64))
    assert held["codec.a"] is kept
    assert kept.tolist() == [[0, 1], [2, 3], [4, 5], [9, 9], [9, 9]]


def test_a_layer_runs_on_its_state_and_leaves_the_new_one() -> None:
    held = state()
    rows = Rows(held, "codec.", torch.tensor([1]), torch.tensor([False]))
    out = rows.run(
        "a", lambda x, kept, lengths: (x + kept, kept * 2), torch.ones(1, 2), torch.ones(1)
    )
    assert out.tolist() == [[3, 4]]
    assert held["codec.a"][1].tolist() == [4, 6]


def test_put_rows_takes_the_type_of_the_state() -> None:
    held = torch.zeros(3, dtype=torch.bfloat16)
    put_rows(held, torch.tensor([1]), torch.tensor([2.5]))
    assert held.tolist() == [0, 2.5, 0]
