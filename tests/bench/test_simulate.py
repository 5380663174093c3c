"""Predictions on a profile that is written out here: every launch has a round cost."""

import msgspec
import pytest

from tests.bench.profiles import round_profile
from voxserve.bench import workloads
from voxserve.bench.load import Load
from voxserve.bench.simulate import ProfileCosts, Supposed, predict
from voxserve.bench.statistics import capacity
from voxserve.scheduler.launches import Lane

PROFILE = round_profile()
TEXTS = workloads.load("libritts")
LOAD = Load(rates=(1, 4, 16, 64), seeds=(1,), window_s=20.0, warm_ups=0, burst=0)


def test_attainment_falls_where_the_slots_are_full() -> None:
    # 32 requests at a time, each about 100 steps of 20 ms: some 16 a second at the very most.
    points, _ = predict(PROFILE, TEXTS, LOAD, Supposed({}))
    low, high = points[0], points[-1]
    assert low.attainment[200] == 1.0
    assert low.stalled == 0.0
    assert low.audio_rate == pytest.approx(8.0, rel=0.4)
    assert high.attainment[200] < 0.5
    assert high.completed + high.refused == high.requests
    assert capacity(points, 0.9).rate in (1.0, 4.0)


def test_first_audio_takes_prefill_and_one_chunk() -> None:
    load = msgspec.structs.replace(LOAD, rates=(0.2,), window_s=100.0)
    points, _ = predict(PROFILE, TEXTS, load, Supposed({}, http_s=0.005))
    # Prefill and its gap, one frame through the codec and its gap, and what is not the engine.
    expected_s = 0.011 + 0.003 + 0.005
    assert points[0].ttfa_p50_s == pytest.approx(expected_s, abs=0.001)


def test_more_engines_carry_more() -> None:
    load = msgspec.structs.replace(LOAD, rates=(16.0,))
    one = predict(PROFILE, TEXTS, load, Supposed({}))[0][0]
    four = predict(PROFILE, TEXTS, load, Supposed({}, engines=4))[0][0]
    assert one.attainment[200] < 0.9
    assert four.attainment[200] > 0.99
    assert four.requests == one.requests


def test_supposed_policy_and_slots_matter() -> None:
    load = msgspec.structs.replace(LOAD, rates=(12.0,), window_s=10.0)
    usual = predict(PROFILE, TEXTS, load, Supposed({}))[0][0]
    assert usual.refused > 0
    patient = predict(PROFILE, TEXTS, load, Supposed({"refuse": False}))[0][0]
    assert patient.refused == 0
    narrow = predict(PROFILE, TEXTS, load, Supposed({}, slots=4))[0][0]
    assert narrow.attainment[200] < usual.attainment[200]


def test_prediction_is_repeatable() -> None:
    load = msgspec.structs.replace(LOAD, rates=(8.0,), window_s=5.0)
    assert predict(PROFILE, TEXTS, load, Supposed({})) == predict(
        PROFILE, TEXTS, load, Supposed({})
    )


def test_rates_of_sets_never_measured_multiply() -> None:
    costs = ProfileCosts(PROFILE)
    assert costs.rates([Lane.LM, Lane.BACKGROUND]) == {Lane.LM: 0.8, Lane.BACKGROUND: 1.0}
    assert costs.rates(list(Lane))[Lane.LM] == pytest.approx(0.4)
