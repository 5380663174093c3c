import itertools

import numpy as np
import pytest

from tests.audio.sounds import RATE_HZ, pitch_hz, voice
from voxserve.audio.stretch import Int16Array, Stretcher

SPEEDS = (0.25, 0.5, 0.9, 1.25, 2.0, 4.0)


def stretched(samples: Int16Array, speed: float, edges: list[int]) -> Int16Array:
    stretcher = Stretcher(RATE_HZ, speed)
    cuts = itertools.pairwise([0, *edges, len(samples)])
    pieces = [stretcher.feed(samples[a:b]) for a, b in cuts]
    return np.concatenate([*pieces, stretcher.finish()])


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("voice_hz", [90, 150, 250])
def test_length_changes_and_pitch_does_not(speed: float, voice_hz: float) -> None:
    samples = voice(voice_hz, 2)
    made = stretched(samples, speed, [])
    assert len(made) == round(len(samples) / speed)
    assert pitch_hz(made, RATE_HZ) == pytest.approx(pitch_hz(samples, RATE_HZ), rel=0.03)


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("samples", [0, 1, 300, 1919, 24_001])
def test_count_is_exact(speed: float, samples: int) -> None:
    made = stretched(voice(150, 1.1)[:samples], speed, list(range(0, samples, 1920)))
    assert len(made) == round(samples / speed)


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("step", [1, 240, 1920])
def test_any_cuts_give_the_same(speed: float, step: int) -> None:
    samples = voice(150, 0.3)
    cut = stretched(samples, speed, list(range(step, len(samples), step)))
    assert np.array_equal(cut, stretched(samples, speed, []))


@pytest.mark.parametrize("speed", SPEEDS)
def test_look_ahead_is_short(speed: float) -> None:
    samples, step = voice(90, 1), 24
    stretcher = Stretcher(RATE_HZ, speed)
    late_s = []
    made = 0
    for at in range(0, len(samples), step):
        made += len(stretcher.feed(samples[at : at + step]))
        late_s.append((at + step - made * speed) / RATE_HZ)
    # The look-ahead, and one hop of output, which is made in one piece.
    assert max(late_s) <= 0.031 + 0.012 * speed
    # With the first 80 ms there is already sound to play.
    assert late_s[80] <= 0.060


@pytest.mark.parametrize("speed", SPEEDS)
def test_no_clicks(speed: float) -> None:
    """No step between two samples is larger than those of the voice itself."""
    samples = voice(120, 1)
    made = stretched(samples, speed, [])[: -RATE_HZ // 20]  # the voice ends in mid-vowel
    assert (
        np.abs(np.diff(made.astype(int))).max() <= 1.1 * np.abs(np.diff(samples.astype(int))).max()
    )


def test_silence_stays_silence() -> None:
    assert not stretched(np.zeros(24_000, np.int16), 1.5, [1920, 3840]).any()
