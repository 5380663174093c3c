"""WAV headers, and the writer of WAV streams whose length is not known yet."""

import struct

HEADER_BYTES = 44
UNKNOWN_SIZE = 0xFFFFFFFF
_BYTES_PER_SAMPLE = 2
_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")


def header(sample_rate_hz: int, pcm_bytes: int | None) -> bytes:
    """44 bytes that stand before 16-bit mono PCM.

    pcm_bytes: length of the PCM that follows; None while it is unknown, which writes 0xFFFFFFFF
    into both size fields, as players of endless streams expect.
    """
    riff_size = UNKNOWN_SIZE if pcm_bytes is None else HEADER_BYTES - 8 + pcm_bytes
    return _HEADER.pack(
        b"RIFF",
        riff_size,
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        sample_rate_hz,
        sample_rate_hz * _BYTES_PER_SAMPLE,
        _BYTES_PER_SAMPLE,
        8 * _BYTES_PER_SAMPLE,
        b"data",
        UNKNOWN_SIZE if pcm_bytes is None else pcm_bytes,
    )


class WavEncoder:
    """Puts the header in front of the first audio, never out alone before it."""

    def __init__(self, sample_rate_hz: int) -> None:
        self._pending = header(sample_rate_hz, None)

    def feed(self, pcm: bytes) -> bytes:
        out = self._pending + pcm
        self._pending = b""
        return out

    def finish(self) -> bytes:
        """The header of a stream that had no audio at all, otherwise nothing."""
        return self.feed(b"")
