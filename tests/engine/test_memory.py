import dataclasses

import pytest

from tests.engine.harness import tiny
from voxserve.config import EngineConfig
from voxserve.engine.memory import (
    _budget_bytes,
    allocate,
    codes_table,
    describe,
    sizes_for,
    weights_bytes,
)
from voxserve.plugin import ModelSpec, PagePool, StateTensor


@pytest.fixture
def spec() -> ModelSpec:
    return tiny()[0].spec


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_described_is_what_is_allocated(spec: ModelSpec, dtype: str) -> None:
    sizes = sizes_for(spec, EngineConfig(slots=3, clips=5, context=256), dtype)
    assert sizes.pages == {"kv": 3 * 4} and sizes.table_pages == {"kv": 4}
    state = allocate(spec, sizes, "cpu")
    table = codes_table(spec, sizes, "cpu")
    assert {len(tensor) for tensor in state.values()} == {4, 6, 13}
    assert table.shape == (4, 256, spec.codebooks)
    held = sum(t.numel() * t.element_size() for t in [*state.values(), table])
    weights = weights_bytes(tiny(dtype)[1])
    parts = describe(spec, sizes, weights)
    assert weights and sum(part.bytes for part in parts) == held + weights
    assert (parts[0].name, parts[-1].name) == ("weights", "codes table")


def test_fewer_pages_than_slots_could_use_are_allowed_but_one_request_must_fit(
    spec: ModelSpec,
) -> None:
    few = sizes_for(spec, EngineConfig(slots=8, context=256, pages=6), "float32")
    assert few.pages == {"kv": 6}
    none = sizes_for(spec, EngineConfig(slots=8, context=256, pages=1), "float32")
    assert none.pages == {"kv": 4}


def test_state_beyond_the_machine_is_refused_in_words(spec: ModelSpec) -> None:
    big = dataclasses.replace(spec, state=(*spec.state, StateTensor("big", (2**40,))))
    with pytest.raises(ValueError, match=r"16 slots of 2048 steps need more than .* lower slots"):
        sizes_for(big, EngineConfig(), "float32")


def _two_pools(spec: ModelSpec, page_bytes: int) -> ModelSpec:
    """The model with a second, dear pool, of which clips hold a page for every second."""
    flow = PagePool(
        "flow",
        units=25,
        need=lambda rows, steps: max(steps - 25, 0),
        clip_need=lambda samples: samples // 24_000 * 25,
    )
    page = StateTensor("flow.kv", (page_bytes // 4,), "float32", "page", "flow")
    return dataclasses.replace(spec, pools=(*spec.pools, flow), state=(*spec.state, page))


def test_clips_have_pages_of_their_own(spec: ModelSpec) -> None:
    two = _two_pools(spec, 64)
    sizes = sizes_for(two, EngineConfig(slots=8, clips=3, context=256), "float32")
    assert sizes.table_pages == {"kv": 4, "flow": 10 + 30}
    assert sizes.clip_table_pages == {"flow": 30}
    assert sizes.pages == {"kv": 8 * 4, "flow": 8 * 10}
    assert sizes.clip_pages == {"kv": 0, "flow": 3 * 30}
    assert len(allocate(two, sizes, "cpu")["flow.kv"]) == 80 + 90 + 1
    few = sizes_for(two, EngineConfig(slots=8, clips=3, context=256, pages=6), "float32")
    assert (few.pages, few.clip_pages) == ({"kv": 6, "flow": 10}, {"kv": 0, "flow": 30})


def test_a_dear_pool_leaves_a_cheap_one_its_fill(spec: ModelSpec) -> None:
    """Memory for about half of the slots: the cheap pool is full for all of them."""
    budget = _budget_bytes("cpu")
    two = _two_pools(spec, budget // 40 // 4 // 4 * 4)
    sizes = sizes_for(two, EngineConfig(slots=8, clips=8, context=256), "float32")
    assert sizes.pages["kv"] == 8 * 4
    assert sizes.pages["flow"] == 3 * 10 and sizes.clip_pages["flow"] == 3 * 30
    with pytest.raises(ValueError, match="lower slots or context"):
        sizes_for(_two_pools(spec, budget // 40 + 4), EngineConfig(slots=8, context=256), "float32")


def test_what_clips_can_not_use_goes_to_requests(spec: ModelSpec) -> None:
    two = _two_pools(spec, _budget_bytes("cpu") // 130 // 4 * 4)
    sizes = sizes_for(two, EngineConfig(slots=99, clips=2, context=256), "float32")
    assert sizes.clip_pages["flow"] == 2 * 30
    assert sizes.pages["flow"] in (5 * 10, 6 * 10)  # some of the budget goes to other state
