import numpy as np
import pytest

from tests.engine.harness import settings_of, tiny
from voxserve.engine.executables import (
    Padding,
    engine_policy,
    key_of,
    keys_of,
    ladder,
    partition_of,
    shape_of,
    step_ladder,
)
from voxserve.engine.lanes import Key
from voxserve.engine.memory import Sizes
from voxserve.plugin import ModelSpec
from voxserve.scheduler.launches import Lane, Launch, Stage


@pytest.fixture
def spec() -> ModelSpec:
    return tiny()[0].spec


@pytest.mark.parametrize(
    ("most", "rows"), [(1, (1,)), (2, (1, 2)), (5, (1, 2, 4, 8)), (8, (1, 2, 4, 8))]
)
def test_row_buckets_are_powers_of_two_up_to_what_is_needed(
    most: int, rows: tuple[int, ...]
) -> None:
    assert ladder(most) == rows


@pytest.mark.parametrize(
    ("most", "last", "count"),
    [(16, 16, 5), (64, 64, 7), (65, 128, 8), (130, 192, 9), (256, 256, 10), (512, 512, 14)],
)
def test_decode_buckets_leave_few_rows_empty(most: int, last: int, count: int) -> None:
    """At most half of the rows to 128, 63 from there on; all are whole tiles of 64."""
    buckets = step_ladder(most)
    assert buckets[-1] == last and len(buckets) == count
    for rows in range(1, last + 1):
        bucket = min(held for held in buckets if held >= rows)
        assert bucket - rows <= min(bucket // 2, 63)
    assert all(held % 64 == 0 for held in buckets if held > 32)
    assert step_ladder(700)[-3:] == (512, 640, 768)


def test_only_decode_steps_have_buckets_between_powers_of_two(spec: ModelSpec) -> None:
    policy = settings_of({"policy": {"prefill_rows": 64}}).policy.policy()
    shape = shape_of(spec, policy, slots=300, pages=(12,))
    assert shape.decode_rows[-5:] == (64, 128, 192, 256, 320)
    assert shape.prefill_rows == (1, 2, 4, 8, 16, 32, 64)
    assert all(rows & (rows - 1) == 0 for rows in shape.codec_rows)


def test_every_launch_that_a_plan_can_hold_has_its_executable(spec: ModelSpec) -> None:
    policy = settings_of({}).policy.policy()
    shape = shape_of(spec, policy, slots=6, pages=(12,))
    keys = set(keys_of(shape))
    assert len(keys) == len(keys_of(shape))
    one = np.zeros(1, np.int32)
    wanted = [(Lane.LM, Stage.DECODE, rows, 0) for rows in (1, 2, 4, 8)]
    wanted += [(Lane.LM, Stage.PREFILL, rows, 8) for rows in (1, 2, 4)]
    wanted += [(Lane.LM, Stage.ENCODE, 1, seconds) for seconds in (5, 15, 30)]
    for lane in (Lane.URGENT, Lane.BACKGROUND):
        wanted += [(lane, Stage.CODEC, r, frames) for r in (1, 2, 4) for frames in (1, 2, 4, 10)]
    launches = [Launch(0, lane, stage, r, units, one, one) for lane, stage, r, units in wanted]
    assert {key_of(launch) for launch in launches} == keys


def test_partitions_follow_the_lanes() -> None:
    assert partition_of(Lane.LM, Stage.DECODE) == "lm"
    assert partition_of(Lane.LM, Stage.PREFILL) == "whole"
    assert partition_of(Lane.URGENT, Stage.CODEC) == "whole"
    assert partition_of(Lane.BACKGROUND, Stage.CODEC) == "codec"


def test_deterministic_chunk_cuts_do_not_follow_the_load() -> None:
    policy = settings_of({}).policy.policy()
    assert engine_policy(policy, deterministic=False).ramp == "load"
    assert engine_policy(policy, deterministic=True).ramp == 0


def test_padding_rows_name_nothing_that_a_request_owns() -> None:
    padding = Padding(slots=6, clips=3, spare_pages={"kv": 12, "flow": 20})
    inputs = {
        "slots": np.array([4, 5]),
        "clips": np.array([0, 1]),
        "pages_kv": np.array([[7, 8], [9, 12]]),
        "seeds": np.array([70, 71]),
    }
    padded = padding.pad(inputs, 4)
    assert padded["slots"].tolist() == [4, 5, 6, 6]
    assert padded["clips"].tolist() == [0, 1, 3, 3]
    assert padded["pages_kv"].tolist() == [[7, 8], [9, 12], [12, 12], [12, 12]]
    assert padded["seeds"].tolist() == [70, 71, 70, 70]
    assert padding.pad(inputs, 2) is inputs


def test_warm_up_inputs_have_the_bucket_shape_and_name_spare_rows(spec: ModelSpec) -> None:
    padding = Padding(slots=6, clips=3, spare_pages={"kv": 12, "flow": 20})
    sizes = Sizes(
        slots=6,
        clips=3,
        context=64,
        pages={"kv": 12, "flow": 15},
        clip_pages={"kv": 0, "flow": 5},
        table_pages={"kv": 32, "flow": 9},
        clip_table_pages={"flow": 4},
        dtype="float32",
    )
    assert sizes.spare_pages == {"kv": 12, "flow": 20}
    prefill = padding.blank(Key(Stage.PREFILL, 4, 8, "whole"), spec, sizes)
    assert prefill["rows"].shape == (4, 8, spec.prompt_columns)
    assert prefill["pages_kv"].shape == (4, 32) and (prefill["pages_kv"] == 12).all()
    assert prefill["pages_flow"].shape == (4, 9) and (prefill["pages_flow"] == 20).all()
    assert prefill["slots"].tolist() == [6] * 4
    codec = padding.blank(Key(Stage.CODEC, 2, 10, "codec"), spec, sizes)
    assert codec["steps"].shape == (2, 10) and codec["fresh"].all()
    encode = padding.blank(Key(Stage.ENCODE, 1, 5, "whole"), spec, sizes)
    assert encode["audio"].shape == (1, 5 * 24_000) and encode["clips"].tolist() == [3]
    assert "pages_kv" not in encode and encode["pages_flow"].tolist() == [[20] * 4]
