import dataclasses

import pytest

from tests.engine.harness import tiny
from voxserve.config import EngineConfig
from voxserve.engine.memory import allocate, codes_table, describe, sizes_for, weights_bytes
from voxserve.plugin import ModelSpec, StateTensor


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
