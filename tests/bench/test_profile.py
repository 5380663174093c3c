"""A profile of tiny with a single slot, where every split is the same CPU, and what is read out of
one."""

from pathlib import Path

import pytest

from voxserve.bench import profile_file, profile_plot
from voxserve.bench.profile import Task, profile
from voxserve.bench.profile_file import Profile
from voxserve.bench.survey import usual_rows
from voxserve.config import load_config
from voxserve.engine.executables import keys_of, step_ladder
from voxserve.errors import InvalidRequestError
from voxserve.scheduler.launches import Lane, Stage


@pytest.fixture(scope="module")
def made() -> Profile:
    config = load_config(overrides={"model": "tiny", "engine": {"slots": 1, "device": "cpu"}})
    return profile(config, Task(minutes=0.1, splits=(8, 16)), lambda what, done, total: None)


def test_every_executable_is_timed(made: Profile) -> None:
    wanted = [(key.stage.name, key.rows, key.units) for key in keys_of(made.scheduler_shape())]
    assert [(t.stage, t.rows, t.units) for t in made.timings] == wanted
    for timing in made.timings:
        assert 0 < timing.alone_s <= timing.alone_p90_s
        assert all(beside_s > 0 for beside_s in timing.beside_s.values())


def test_every_split_is_surveyed(made: Profile) -> None:
    assert [split.codec_sms for split in made.splits] == [0, 8, 16]
    for split in made.splits:
        assert [t.rows for t in split.of(Lane.LM, Stage.DECODE)] == [1]
        for timing in split.timings:
            assert timing.alone_s > 0 and all(beside_s > 0 for beside_s in timing.beside_s.values())
    assert made.choice is not None
    assert len(made.choice.candidates) == 4
    assert made.codec_sms == made.choice.winner.settings["engine.codec_sms"]
    for one in made.choice.candidates:
        assert 0 < one.capacity <= max(one.lm_rate, one.codec_rate)


def test_splits_are_compared_at_small_and_large_batches() -> None:
    """Not at the largest buckets alone, which lie close together and may all be too slow."""
    assert usual_rows(step_ladder(256)) == [1, 64, 128, 256]
    assert usual_rows(step_ladder(190)) == [1, 64, 128, 192]


def test_configured_split_can_be_kept() -> None:
    config = load_config(overrides={"model": "tiny", "engine": {"slots": 1, "device": "cpu"}})
    kept = profile(config, Task(minutes=0.01, splits=()), lambda what, done, total: None)
    assert kept.splits == [] and kept.choice is None
    assert kept.codec_sms == config.engine.codec_sms


def test_profile_seeds_the_estimates(made: Profile) -> None:
    seed = made.estimates()
    assert len(seed) == len(made.timings)
    assert seed[Lane.LM, Stage.DECODE, 1, 0] == pytest.approx(
        next(t.alone_p90_s for t in made.timings if t.stage == "DECODE")
    )


def test_lanes_slow_one_another(made: Profile) -> None:
    assert len(made.sharing) == 9
    assert made.rates([Lane.LM]) == {Lane.LM: 1.0}
    both = made.rates([Lane.LM, Lane.BACKGROUND])
    assert set(both) == {Lane.LM, Lane.BACKGROUND}
    assert all(0 < rate <= 1 for rate in both.values())


def test_profile_can_be_read_back_and_drawn(made: Profile, tmp_path: Path) -> None:
    profile_file.write(made, tmp_path / "profile.json")
    again = profile_file.read(tmp_path / "profile.json")
    assert again.timings == made.timings
    assert again.scheduler_shape() == made.scheduler_shape()
    assert again.splits == made.splits
    assert again.choice == made.choice
    for path in profile_plot.plots(made, tmp_path):
        assert path.stat().st_size > 10_000


def test_what_is_no_profile_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{}")
    with pytest.raises(InvalidRequestError, match=r"x\.json is not a profile"):
        profile_file.read(file)
