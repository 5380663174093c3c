"""Sounds to test with, and what FFmpeg hears in encoded ones."""

import io

import av
import numpy as np
from numpy.typing import NDArray

Int16Array = NDArray[np.int16]

RATE_HZ = 24_000


def voice(pitch_hz: float, seconds: float, rate_hz: int = RATE_HZ) -> Int16Array:
    """Something like a vowel: harmonics of a pitch that moves a little, louder and softer."""
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    phase = np.cumsum(pitch_hz * (1 + 0.02 * np.sin(2 * np.pi * t))) / rate_hz
    harmonics = range(1, 15)
    wave = np.sum([np.sin(2 * np.pi * k * phase) / k for k in harmonics], axis=0)
    loudness = 0.6 + 0.4 * np.sin(2 * np.pi * 3 * t)
    samples: Int16Array = np.rint(4000 * wave * loudness).astype(np.int16)
    return samples


def pitch_hz(samples: Int16Array, rate_hz: int) -> float:
    """The median over voiced frames of 60 ms of the lag at which they are most like themselves."""
    size = 60 * rate_hz // 1000
    shortest, longest = rate_hz // 400, rate_hz // 60
    lags = []
    for start in range(0, len(samples) - size, size // 8):
        frame = samples[start : start + size] - samples[start : start + size].mean()
        alike = np.correlate(frame, frame, "full")[size - 1 :]
        lag = shortest + int(np.argmax(alike[shortest:longest]))
        if frame.std() > 300 and alike[lag] / (size - lag) > 0.8 * alike[0] / size:
            lags.append(lag)
    return rate_hz / float(np.median(lags))


def decode(data: bytes) -> tuple[Int16Array, int]:
    """The samples of a whole or partial file, and their rate; none if it cannot be opened yet."""
    pieces = [np.zeros(0, np.int16)]
    rate_hz = 0
    try:
        with av.open(io.BytesIO(data), "r") as file:
            rate_hz = file.streams.audio[0].rate
            to_int16 = av.AudioResampler("s16", "mono", rate_hz)
            for frame in file.decode(audio=0):
                pieces += [made.to_ndarray()[0] for made in to_int16.resample(frame)]
    except (av.InvalidDataError, av.EOFError):
        pass
    return np.concatenate(pieces), rate_hz


def snr_db(wanted: Int16Array, got: Int16Array) -> float:
    noise = wanted.astype(np.float64) - got
    return float(10 * np.log10(np.mean(wanted.astype(np.float64) ** 2) / np.mean(noise**2)))
