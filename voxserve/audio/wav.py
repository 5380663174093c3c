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
    """Puts the header in front of the first audio, never out alone before it.

    whole: everything comes at the end, behind a header with the true sizes.
    """

    def __init__(self, sample_rate_hz: int, whole: bool = False) -> None:
        self._rate_hz = sample_rate_hz
        self._whole = whole
        self._begun = False
        self._kept = bytearray()

    def feed(self, pcm: bytes) -> bytes:
        if self._whole:
            self._kept += pcm
            return b""
        head = b"" if self._begun else header(self._rate_hz, None)
        self._begun = True
        return head + pcm

    def finish(self) -> bytes:
        """The whole file; of a stream, the header if it had no audio at all."""
        if self._whole:
            return header(self._rate_hz, len(self._kept)) + self._kept
        return b"" if self._begun else self.feed(b"")

    def close(self) -> None:
        self._kept.clear()
