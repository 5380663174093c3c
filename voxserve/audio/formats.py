"""The response formats: what each is called on the wire, and how PCM becomes its bytes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from voxserve.audio import wav

DEFAULT_FORMAT = "mp3"
"""What OpenAI's clients expect when they name none."""


class Encoder(Protocol):
    """Turns 16-bit mono PCM into the bytes of one stream; one object a stream."""

    def feed(self, pcm: bytes) -> bytes:
        """Bytes that can go out now; may be empty while the encoder looks ahead."""

    def finish(self) -> bytes:
        """What is left at the end of the stream."""

    def close(self) -> None:
        """Free what it holds, at the end or before."""


@dataclass(frozen=True, slots=True)
class Format:
    """One `response_format`.

    content_type: with `{rate}` where the sample rate belongs. bit_depth: of raw samples, None for
    compressed formats. encoder: (rate in Hz of what is fed, of what is heard, whole) -> a fresh
    encoder; a whole file comes out at its end with exact sizes. plays_at_hz: the one rate that its
    decoders give, whatever went in; encodes_hz: what may go in then. unasked_hz: the rate for those
    who name none, if the model's own is lower.
    """

    name: str
    content_type: str
    bit_depth: int | None
    encoder: Callable[[int, int, bool], Encoder]
    plays_at_hz: int | None = None
    encodes_hz: tuple[int, ...] = ()
    unasked_hz: int = 0


class _PcmEncoder:
    def __init__(self, whole: bool) -> None:
        self._whole = whole
        self._kept = bytearray()

    def feed(self, pcm: bytes) -> bytes:
        if not self._whole:
            return pcm
        self._kept += pcm
        return b""

    def finish(self) -> bytes:
        return bytes(self._kept)

    def close(self) -> None:
        self._kept.clear()


def _compressed(
    name: str,
    content_type: str,
    plays_at_hz: int | None = None,
    encodes_hz: tuple[int, ...] = (),
    unasked_hz: int = 0,
) -> Format:
    def encoder(fed_hz: int, heard_hz: int, whole: bool) -> Encoder:
        # Loading FFmpeg takes a fifth of a second and 30 MB: only who asks for it pays.
        from voxserve.audio.compressed import CompressedEncoder

        return CompressedEncoder(name, fed_hz, fed_hz if plays_at_hz else heard_hz, whole=whole)

    return Format(name, content_type, None, encoder, plays_at_hz, encodes_hz, unasked_hz)


FORMATS: Mapping[str, Format] = {
    "mp3": _compressed("mp3", "audio/mpeg"),
    "opus": _compressed(
        "opus", "audio/ogg; codecs=opus", 48_000, (8000, 12_000, 16_000, 24_000, 48_000)
    ),
    # Three blocks of 1024 samples pass before the first sound: 128 ms at 24 kHz, 64 at 48.
    "aac": _compressed("aac", "audio/aac", unasked_hz=48_000),
    "flac": _compressed("flac", "audio/flac"),
    "wav": Format(
        "wav", "audio/wav", 16, lambda fed_hz, heard_hz, whole: wav.WavEncoder(fed_hz, whole)
    ),
    "pcm": Format(
        "pcm",
        "audio/pcm; rate={rate}; channels=1",
        16,
        lambda fed_hz, heard_hz, whole: _PcmEncoder(whole),
    ),
}
