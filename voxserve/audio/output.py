"""What becomes of a model's PCM on its way out: another speed, another rate, a format."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from voxserve.audio.formats import FORMATS, Format
from voxserve.audio.stretch import Stretcher
from voxserve.errors import InvalidRequestError

Int16Array = NDArray[np.int16]

FIRST_S = 0.02
"""No stream begins with less audio than this."""


@dataclass(frozen=True, slots=True)
class Piece:
    """samples: how many, at `Output.pcm_hz`, came out with these bytes: none without bytes."""

    data: bytes = b""
    samples: int = 0

    def __add__(self, other: "Piece") -> "Piece":
        return Piece(self.data + other.data, self.samples + other.samples)


@dataclass(frozen=True, slots=True)
class Output:
    """native_hz: of the model's PCM. pcm_hz: of what is encoded. sample_rate_hz: of what clients
    hear; not the same where the encoder changes it. speed: above 1 is faster.
    """

    format: Format
    native_hz: int
    pcm_hz: int
    sample_rate_hz: int
    speed: float = 1.0

    @property
    def verbatim(self) -> bool:
        """The samples go out as they come, so that all this takes no time."""
        same = self.native_hz == self.pcm_hz and self.speed == 1.0
        return same and self.format.bit_depth is not None

    def open(self, *, whole: bool) -> "OutputStream":
        """whole: a single piece at the end, a file with exact sizes."""
        return OutputStream(self, whole)


def output_for(name: str, native_hz: int, sample_rate_hz: int | None, speed: float) -> Output:
    """sample_rate_hz: None for the one that suits model and format best. name: one of FORMATS.

    Raises InvalidRequestError for a rate that the format does not have.
    """
    kind = FORMATS[name]
    if kind.plays_at_hz is None:
        if sample_rate_hz is None and kind.unasked_hz > native_hz:
            return Output(kind, native_hz, native_hz, kind.unasked_hz, speed)
        rate_hz = sample_rate_hz or native_hz
        return Output(kind, native_hz, rate_hz, rate_hz, speed)
    if sample_rate_hz not in (None, kind.plays_at_hz):
        raise InvalidRequestError(
            f"sample_rate is {sample_rate_hz}, {name} has {kind.plays_at_hz} only",
            param="sample_rate",
        )
    pcm_hz = native_hz if native_hz in kind.encodes_hz else kind.plays_at_hz
    return Output(kind, native_hz, pcm_hz, kind.plays_at_hz, speed)


class _Filter(Protocol):
    def feed(self, samples: Int16Array) -> Int16Array: ...

    def finish(self) -> Int16Array: ...


class OutputStream:
    """One stream; its methods raise GenerationError when FFmpeg refuses.

    Used by one thread at a time, and closed at the end or before.
    """

    def __init__(self, output: Output, whole: bool) -> None:
        self._least = 0 if whole else round(FIRST_S * output.pcm_hz)
        self._held: list[Int16Array] = []
        self._samples = 0  # since the last piece with bytes
        self._filters: list[_Filter] = []
        if output.speed != 1.0:
            self._filters.append(Stretcher(output.native_hz, output.speed))
        if output.pcm_hz != output.native_hz:
            # Not worth its time to load where it is not used.
            from voxserve.audio.resample import Resampler

            self._filters.append(Resampler(output.native_hz, output.pcm_hz))
        self._encoder = output.format.encoder(output.pcm_hz, output.sample_rate_hz, whole)

    def feed(self, pcm: bytes) -> Piece:
        """pcm: 16-bit little-endian mono at the native rate."""
        samples: Int16Array = np.frombuffer(pcm, "<i2")
        for each in self._filters:
            samples = each.feed(samples)
        self._held.append(samples)
        if sum(map(len, self._held)) < self._least:
            return Piece()
        self._least = 0
        return self._piece(self._encoder.feed(self._pcm()))

    def finish(self) -> Piece:
        """The end of the stream."""
        for index, each in enumerate(self._filters):
            rest = each.finish()
            for later in self._filters[index + 1 :]:
                rest = later.feed(rest)
            self._held.append(rest)
        pcm = self._pcm()
        data = self._encoder.feed(pcm) if pcm else b""
        return self._piece(data + self._encoder.finish())

    def close(self) -> None:
        self._encoder.close()

    def _pcm(self) -> bytes:
        """What is ready to be encoded."""
        pcm = b"".join(samples.astype("<i2", copy=False).tobytes() for samples in self._held)
        self._held.clear()
        self._samples += len(pcm) // 2
        return pcm

    def _piece(self, data: bytes) -> Piece:
        if not data:
            return Piece()
        piece = Piece(data, self._samples)
        self._samples = 0
        return piece
