"""Recordings for tests, made when they are needed."""

import io

import av
import numpy as np
import soundfile  # type: ignore[import-untyped]
from numpy.typing import NDArray

RATE_HZ = 24_000


def noise(seconds: float, rate_hz: int = RATE_HZ, channels: int = 1, seed: int = 0) -> bytes:
    """A 16-bit WAV file of quiet noise."""
    return sounding(_noise(seconds, rate_hz, channels, seed), rate_hz)


def tone(seconds: float, rate_hz: int, channels: int = 1, hz: float = 440.0) -> NDArray[np.float32]:
    """[samples, channels], -6 dB."""
    times = np.arange(int(seconds * rate_hz)) / rate_hz
    wave = 0.5 * np.sin(2 * np.pi * hz * times)
    return np.repeat(wave[:, None], channels, axis=1).astype(np.float32)


def sounding(
    audio: NDArray[np.float32], rate_hz: int, kind: str = "WAV", subtype: str | None = None
) -> bytes:
    """A file that libsndfile writes. audio: [samples, channels]."""
    file = io.BytesIO()
    soundfile.write(file, audio, rate_hz, format=kind, subtype=subtype)
    return file.getvalue()


def containing(audio: NDArray[np.float32], rate_hz: int, container: str, codec: str) -> bytes:
    """A file that FFmpeg writes, such as m4a. audio: [samples, channels]."""
    file = io.BytesIO()
    layout = {1: "mono", 2: "stereo"}[audio.shape[1]]
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate_hz, layout=layout)
        assert isinstance(stream, av.AudioStream)
        fifo = av.AudioResampler(format=stream.format.name, layout=layout, rate=rate_hz)
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(audio.T), format="fltp", layout=layout
        )
        frame.sample_rate = rate_hz
        for piece in fifo.resample(frame):
            output.mux(stream.encode(piece))
        output.mux(stream.encode(None))
    return file.getvalue()


def _noise(seconds: float, rate_hz: int, channels: int, seed: int) -> NDArray[np.float32]:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal((int(seconds * rate_hz), channels)) * 0.1).astype(np.float32)
