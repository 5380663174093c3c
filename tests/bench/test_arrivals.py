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
