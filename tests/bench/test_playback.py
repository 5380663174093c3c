"""Replay of playback on arrivals whose stalls can be worked out by hand."""

import pytest

from voxserve.bench.playback import Playback, replay


@pytest.mark.parametrize(
    ("arrivals", "stall_s", "stops"),
    [
        ([], 0.0, 0),
        ([(5.0, 1.0)], 0.0, 0),
        ([(0.2, 1.0), (1.0, 1.0), (2.1, 1.0)], 0.0, 0),
        ([(0.2, 1.0), (1.5, 1.0)], 0.3, 1),
        # The first pause moves all later playback: the third piece is then in time.
        ([(0.0, 1.0), (2.0, 1.0), (2.9, 1.0)], 1.0, 1),
        ([(0.0, 0.5), (1.0, 0.5), (2.0, 0.5)], 1.0, 2),
        # Audio that comes early is kept, and makes up for a late piece.
        ([(0.0, 0.5), (0.1, 2.0), (2.4, 1.0)], 0.0, 0),
        ([(0.0, 0.5), (0.1, 2.0), (2.6, 1.0)], 0.1, 1),
    ],
)
def test_replay(arrivals: list[tuple[float, float]], stall_s: float, stops: int) -> None:
    playback = replay(arrivals)
    assert playback.stall_s == pytest.approx(stall_s, abs=1e-12)
    assert playback.stops == stops


def test_ten_milliseconds_are_a_stall() -> None:
    assert not Playback(0.0099, 3).stalled
    assert Playback(0.010, 1).stalled
