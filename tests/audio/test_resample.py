import numpy as np
import pytest

from tests.audio.sounds import RATE_HZ
from voxserve.audio.resample import Int16Array, Resampler

RATES_HZ = (8000, 16_000, 22_050, 44_100, 48_000)


def resampled(samples: Int16Array, to_hz: int, step: int) -> Int16Array:
    resampler = Resampler(RATE_HZ, to_hz)
    pieces = [resampler.feed(samples[at : at + step]) for at in range(0, len(samples), step)]
    return np.concatenate([*pieces, resampler.finish()])


def tone(hz: float, samples: int, rate_hz: int = RATE_HZ) -> Int16Array:
    wave = np.sin(2 * np.pi * hz * np.arange(samples) / rate_hz)
    made: Int16Array = np.rint(10_000 * wave).astype(np.int16)
    return made


@pytest.mark.parametrize("to_hz", RATES_HZ)
@pytest.mark.parametrize("samples", [0, 1, 7, 1000, 12_345, 24_001])
def test_count_is_exact(to_hz: int, samples: int) -> None:
    made = resampled(tone(440, samples), to_hz, step=1920)
    assert len(made) == round(samples * to_hz / RATE_HZ)


@pytest.mark.parametrize("to_hz", RATES_HZ)
@pytest.mark.parametrize("step", [1, 480, 1920, 5000])
def test_any_cuts_give_the_same(to_hz: int, step: int) -> None:
    samples = tone(440, 6000)
    assert np.array_equal(resampled(samples, to_hz, step), resampled(samples, to_hz, 6000))


@pytest.mark.parametrize("to_hz", RATES_HZ)
def test_tone_stays_the_same_tone(to_hz: int) -> None:
    made = resampled(tone(1000, RATE_HZ), to_hz, step=1920)
    wanted = tone(1000, to_hz, to_hz)
    inner = slice(to_hz // 10, -to_hz // 10)  # the filter rings where the tone is cut off
    assert np.abs(wanted[inner] - made[inner]).max() <= 2


def test_what_the_lower_rate_cannot_hold_is_gone() -> None:
    made = resampled(tone(6000, RATE_HZ), 8000, step=1920)
    assert np.abs(made[800:-800]).max() <= 1


def test_full_scale_does_not_wrap_around() -> None:
    square = np.where(np.arange(RATE_HZ) % 48 < 24, 32_767, -32_768).astype(np.int16)
    made = resampled(square, 48_000, step=1920).astype(np.int64)
    assert np.abs(made).max() == 32_767
    high = np.arange(len(made)) % 96 < 48
    assert made[high].min() > -4000 and made[~high].max() < 4000
