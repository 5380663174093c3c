"""The load of a window is decided by rate and seed alone."""

import numpy as np
import pytest

from voxserve.bench.arrivals import orders, poisson
from voxserve.bench.targets import Target, forced_frames
from voxserve.bench.workloads import load

TARGET = Target("voxserve", "http://127.0.0.1:8000", voice="ryan", force_length=True)


def test_arrivals_are_poisson() -> None:
    counts = [len(poisson(20.0, 10.0, seed)) for seed in range(200)]
    assert np.mean(counts) == pytest.approx(200, abs=3)
    assert np.var(counts) == pytest.approx(200, rel=0.3)
    gaps = np.diff(poisson(100.0, 100.0, 7))
    assert np.std(gaps) == pytest.approx(np.mean(gaps), rel=0.05)


def test_longer_window_and_other_rate_keep_the_pattern() -> None:
    short, long = poisson(10.0, 5.0, 3), poisson(10.0, 50.0, 3)
    assert long[: len(short)] == short
    double = poisson(20.0, 2.5, 3)
    assert double == pytest.approx([time / 2 for time in short])


def test_seed_decides_texts_and_times() -> None:
    workload = load("libritts")

    def sent(seed: int) -> list[tuple[float, str]]:
        times = poisson(5.0, 10.0, seed)
        return [(order.due_s, order.id) for order in orders(workload, TARGET, times, seed)]

    assert sent(1) == sent(1)
    assert [name for _, name in sent(1)] != [name for _, name in sent(2)][: len(sent(1))]


def test_request_of_our_own_server() -> None:
    (order,) = orders(load("libritts"), TARGET, [0.5], seed=3)
    words = len(order.text.split())
    assert order.body == {
        "input": order.text,
        "voice": "ryan",
        "response_format": "pcm",
        "seed": 3_000_000,
        "extra_params": {"ignore_eos": True, "max_frames": forced_frames(words, 0.08)},
    }
    assert order.frames == forced_frames(words, 0.08)


def test_leavers_follow_from_the_seed_and_are_gone_before_their_speech_is() -> None:
    texts = load("libritts")
    times = [float(second) for second in range(2000)]
    drawn = orders(texts, TARGET, times, 3, leave=0.05)
    left = {order.index: order for order in drawn if order.leave_s is not None}
    assert 70 <= len(left) <= 130
    shares = [(order.leave_s or 0.0) / TARGET.planned_s(order.text) for order in left.values()]
    assert min(shares) >= 0.0 and max(shares) <= 1.0
    assert np.mean(shares) == pytest.approx(0.5, abs=0.1)
    again = orders(texts, TARGET, times[:100], 3, leave=0.05)
    assert again == drawn[:100]
    # A larger share adds leavers to those there were, and nobody else's request changes.
    more = orders(texts, TARGET, times, 3, leave=0.1)
    assert all(more[index] == order for index, order in left.items())
    assert [order.body for order in more] == [order.body for order in drawn]
    assert all(order.leave_s is None for order in orders(texts, TARGET, times, 3))
