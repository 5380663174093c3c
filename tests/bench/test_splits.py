"""The choice among ways of sharing a device, on figures that can be worked out by hand."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.bench.profiles import FRAMES_A_REQUEST, SMS, round_profile, split, split_profile
from voxserve.bench import deployment, profile_plot
from voxserve.bench.profile_file import Choice
from voxserve.bench.splits import TIME_SHARING, choose
from voxserve.config import load_config
from voxserve.errors import InvalidRequestError
from voxserve.scheduler.launches import Lane, Stage

SHAPE = replace(round_profile().scheduler_shape(), decode_rows=(1, 64, 128))


def _chosen(lm_loss: float, gap_s: float = 0.0, target: float | None = None) -> Choice:
    splits = [split(0, starved=5.0), *(split(sms, lm_loss) for sms in (16, 24, 32, 48))]
    return choose(splits, SHAPE, FRAMES_A_REQUEST, gap_s, target)


def test_rates_are_requests_a_second() -> None:
    found = {one.name: one for one in _chosen(lm_loss=1.0).candidates}
    # 100 steps of 6 ms on 132 SMs for 128 requests, and an eighth of a prefill of 4 ms.
    lm_s = 0.6 * 132 / 100 / 128 + 0.0005
    assert found["100/32"].lm_rate == pytest.approx(1 / lm_s)
    # 10 chunks, of which 16 take 2 ms on 132 SMs.
    assert found["100/32"].codec_rate == pytest.approx(16 / (10 * 0.002 * 132 / 32))
    assert found["100/32"].capacity == min(found["100/32"].lm_rate, found["100/32"].codec_rate)
    shared_s = 0.6 / 128 + 0.0005 + 10 * 0.002 / 16
    assert found[TIME_SHARING].capacity == pytest.approx(1 / shared_s)
    assert found["no partition"].capacity < found["116/16"].capacity


def test_the_balanced_split_wins_when_the_host_is_slow() -> None:
    choice = _chosen(lm_loss=1.0, gap_s=0.001)
    assert choice.chosen == "100/32"
    assert choice.winner.settings == {"engine.codec_sms": 32}


def test_time_sharing_wins_where_the_lm_loses_a_quarter_beside_the_codec() -> None:
    choice = _chosen(lm_loss=1.25)
    assert choice.chosen == TIME_SHARING
    assert choice.winner.settings == {"engine.codec_sms": 0, "policy.overlap": False}


def test_a_small_target_leaves_more_to_the_lm() -> None:
    choice = _chosen(lm_loss=1.0, gap_s=0.001, target=90.0)
    assert choice.chosen == "116/16"
    assert choice.winner.codec_rate >= 90


def test_a_target_beyond_every_codec_falls_back_to_the_best_balance() -> None:
    assert _chosen(lm_loss=1.0, gap_s=0.001, target=10_000.0).chosen == "100/32"


def test_steps_too_slow_for_real_time_do_not_count() -> None:
    whole = split(0)
    timings = [
        msgspec.structs.replace(t, alone_s=0.1) if t.rows == 128 else t for t in whole.timings
    ]
    whole = msgspec.structs.replace(whole, timings=timings)
    found = choose([whole], SHAPE, FRAMES_A_REQUEST, 0.0, None)
    assert found.lm_alone == pytest.approx(1 / (0.6 / 64 + 0.0005))


def test_the_undivided_device_must_be_among_the_splits() -> None:
    with pytest.raises(InvalidRequestError, match="must be 0"):
        choose([split(32)], SHAPE, FRAMES_A_REQUEST, 0.0, None)


def test_profile_moves_to_another_split() -> None:
    made = split_profile()
    there = made.at_split(48)
    assert there.codec_sms == 48
    step = (Lane.LM, Stage.DECODE, 32, 0)
    batch = (Lane.BACKGROUND, Stage.CODEC, 16, 10)
    home = made.codec_sms
    assert home == 24
    assert there.seconds(batch) == pytest.approx(made.seconds(batch) * home / 48)
    assert there.seconds(step) == pytest.approx(made.seconds(step) * (SMS - home) / (SMS - 48))
    urgent = (Lane.URGENT, Stage.CODEC, 1, 1)
    assert there.seconds(urgent) == made.seconds(urgent)
    assert there.rates([Lane.LM, Lane.BACKGROUND])[Lane.LM] == pytest.approx(1 / 1.04)
    assert there.rates([Lane.LM, Lane.URGENT])[Lane.LM] == 0.5
    with pytest.raises(InvalidRequestError, match="tried: 0, 16, 24, 32, 48"):
        made.at_split(40)


def test_times_between_buckets_are_interpolated() -> None:
    made = round_profile()
    assert made.seconds((Lane.URGENT, Stage.CODEC, 3, 10)) == pytest.approx(0.006)
    assert made.seconds((Lane.URGENT, Stage.CODEC, 32, 10)) == pytest.approx(0.064)
    assert made.seconds((Lane.URGENT, Stage.CODEC, 2, 3)) == pytest.approx(0.004)
    with pytest.raises(InvalidRequestError, match="no ENCODE on the LM lane"):
        made.seconds((Lane.LM, Stage.ENCODE, 1, 4))


def test_config_of_a_profile_can_be_served(tmp_path: Path) -> None:
    made = split_profile()
    text = deployment.text(made, "profile.json", {"engine.slots": 200})
    file = tmp_path / deployment.file_name(made)
    assert file.name == "round-none.yaml"
    file.write_text(text)
    config = load_config(file)
    assert config.model == "round"
    assert config.engine.codec_sms == made.codec_sms
    assert config.engine.slots == 200
    assert config.engine.profile == tmp_path / "profile.json"
    assert yaml.safe_load(text)["model"] == "round"
    assert "<- chosen" in text


def test_pictures_of_the_splits_are_drawn(tmp_path: Path) -> None:
    drawn = profile_plot.plots(split_profile(), tmp_path)
    assert [path.name for path in drawn] == ["runs.png", "speed.png", "joint.png", "latency.png"]
    assert all(path.stat().st_size > 10_000 for path in drawn)
