"""Slots over pages: where prompts and steps lie, and what padding may touch."""

import torch
from torch import Tensor
from torch.testing import assert_close

from voxserve.nn.attention import causal
from voxserve.nn.paging import PagedSlots

UNITS, SPARE, LAYERS, SLOTS = 4, 6, 2, 3
PADDING = SLOTS


def state() -> dict[str, Tensor]:
    """Room for three slots of three pages each."""
    kv = {f"lm.kv.{n}": torch.zeros(SPARE + 1, 2, UNITS, 1, 2) for n in range(LAYERS)}
    tables = torch.full((SLOTS + 1, 3), SPARE)
    return {"lm.pages": tables, "lm.prompt": torch.zeros(SLOTS + 1, dtype=torch.int64), **kv}


def heads(positions: int, seed: int) -> Tensor:
    return torch.randn(2, positions, 1, 2, generator=torch.Generator().manual_seed(seed))


def test_a_prompt_and_a_step_equal_one_pass_and_padding_keeps_to_the_spare_page() -> None:
    held = state()
    paged = PagedSlots(held, "lm.", LAYERS, UNITS)
    slots, lengths = torch.tensor([1, PADDING]), torch.tensor([5, 6])
    table = paged.table(torch.tensor([[2, 4], [0, 0]]))
    assert table.tolist() == [[2, 4, SPARE], [0, 0, SPARE]]
    held["lm.pages"][slots], held["lm.prompt"][slots] = table, lengths
    queries, keys, values = (heads(6, seed) for seed in (1, 2, 3))
    positions, attends = paged.prompts(slots, table, lengths, 6)
    assert positions.tolist() == [[0, 1, 2, 3, 4, 5]] * 2 and len(attends) == LAYERS
    attends[1](queries, keys, values)
    positions, attends = paged.next(slots, torch.tensor([1, 1]))
    assert positions.tolist() == [[5], [6]]
    out = attends[1](queries[:, 5:], keys[:, 5:], values[:, 5:])
    assert_close(out[0, 0], causal(queries, keys, values)[0, 5])
    touched = held["lm.kv.1"].flatten(1).any(dim=1).nonzero()[:, 0]
    assert touched.tolist() == [2, 4, SPARE] and not held["lm.kv.0"].any()
    assert paged.real(slots).tolist() == [[True], [False]]
