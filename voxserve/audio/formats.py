"""The response formats: what each is called on the wire, and how PCM becomes its bytes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from voxserve.audio import wav


class Encoder(Protocol):
    """Turns 16-bit mono PCM into the bytes of one stream; one object a stream."""

    def feed(self, pcm: bytes) -> bytes:
        """Bytes that can go out now; may be empty while the encoder looks ahead."""

    def finish(self) -> bytes:
        """What is left at the end of the stream."""


@dataclass(frozen=True, slots=True)
class Format:
    """One `response_format`.

    content_type: with `{rate}` where the sample rate belongs. bit_depth: of raw samples, None for
    compressed formats. encoder: sample rate in Hz -> a fresh encoder. whole: (PCM, sample rate) ->
    a complete file with exact sizes.
    """

    name: str
    content_type: str
    bit_depth: int | None
    encoder: Callable[[int], Encoder]
    whole: Callable[[bytes, int], bytes]


class _PcmEncoder:
    def feed(self, pcm: bytes) -> bytes:
        return pcm

    def finish(self) -> bytes:
        return b""


FORMATS: Mapping[str, Format] = {
    "wav": Format(
        "wav",
        "audio/wav",
        16,
        wav.WavEncoder,
        lambda pcm, rate_hz: wav.header(rate_hz, len(pcm)) + pcm,
    ),
    "pcm": Format(
        "pcm",
        "audio/pcm; rate={rate}; channels=1",
        16,
        lambda rate_hz: _PcmEncoder(),
        lambda pcm, rate_hz: pcm,
    ),
}
