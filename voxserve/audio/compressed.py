"""The compressed formats, encoded by FFmpeg's libraries as the PCM comes.

Importing this loads those libraries, so nothing but a request for one of its formats does.
"""

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import av
import numpy as np

from voxserve.errors import GenerationError

_SILENCE_S = 0.02


@dataclass(frozen=True, slots=True)
class Codec:
    """container, name: as FFmpeg calls them. bit_rate: in bit/s, None for lossless codecs.

    container_options, codec_options: where the bytes go out as they are made. whole_container,
    whole_codec: where they go out at the end, in one file.
    """

    container: str
    name: str
    bit_rate: int | None
    container_options: Mapping[str, str] = field(default_factory=dict)
    codec_options: Mapping[str, str] = field(default_factory=dict)
    whole_container: Mapping[str, str] = field(default_factory=dict)
    whole_codec: Mapping[str, str] = field(default_factory=dict)


CODECS: Mapping[str, Codec] = {
    # A Xing frame tells the length, which a stream does not know; the bit reservoir would hold back
    # the first frames for 48 ms more.
    "mp3": Codec(
        "mp3",
        "libmp3lame",
        64_000,
        {"id3v2_version": "0", "write_xing": "0"},
        {"compression_level": "7", "reservoir": "0"},
        {"id3v2_version": "0"},
        {"compression_level": "7"},
    ),
    # Pages would hold a whole second if nobody said otherwise.
    "opus": Codec(
        "ogg",
        "libopus",
        48_000,
        {"page_duration": "20000"},
        {"compression_level": "5"},
        {},
        {"compression_level": "5"},
    ),
    "aac": Codec("adts", "aac", 64_000, {}, {"aac_coder": "fast"}, {}, {"aac_coder": "fast"}),
    # Blocks of 27 ms up to level 2, of 105 ms above.
    "flac": Codec(
        "flac", "flac", None, {}, {"compression_level": "2"}, {}, {"compression_level": "5"}
    ),
}


class _Pipe:
    """A file that cannot seek, so that what was written can go out."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


class CompressedEncoder:
    """One stream. Every method but `close` raises GenerationError when FFmpeg refuses.

    What FFmpeg holds is freed by `close` alone: up to 8 MB (flac).
    """

    def __init__(self, name: str, fed_hz: int, encoded_hz: int, *, whole: bool) -> None:
        """fed_hz: of the PCM; FFmpeg changes it to `encoded_hz`, which delays it by 1 ms.

        whole: nothing comes out before `finish`, and the container tells its exact length.
        """
        codec = CODECS[name]
        self._rate_hz = fed_hz
        self._samples = 0
        self._file: io.BytesIO | _Pipe = io.BytesIO() if whole else _Pipe()
        container_options = codec.whole_container if whole else codec.container_options
        with _refusals():
            self._container = av.open(
                self._file,
                "w",
                format=codec.container,
                options={"flush_packets": "1", **container_options},
            )
            stream = self._container.add_stream(
                codec.name,
                rate=encoded_hz,
                options=dict(codec.whole_codec if whole else codec.codec_options),
                layout="mono",
            )
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        if codec.bit_rate is not None:
            stream.bit_rate = codec.bit_rate

    def feed(self, pcm: bytes) -> bytes:
        if pcm:
            self._encode(pcm)
        return self._file.take() if isinstance(self._file, _Pipe) else b""

    def finish(self) -> bytes:
        """The end of the file. Without any audio it holds a moment of silence: an empty file is
        none that players open."""
        if not self._samples:
            self._encode(bytes(2 * round(_SILENCE_S * self._rate_hz)))
        self._mux(None)
        with _refusals():
            self._container.close()
        return self._file.take() if isinstance(self._file, _Pipe) else self._file.getvalue()

    def close(self) -> None:
        """Free everything. After it nothing may be called but this."""
        with contextlib.suppress(av.FFmpegError):
            self._container.close()

    def _encode(self, pcm: bytes) -> None:
        samples = np.frombuffer(pcm, "<i2")[None]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = self._rate_hz
        frame.pts = self._samples
        self._samples += frame.samples
        self._mux(frame)

    def _mux(self, frame: av.AudioFrame | None) -> None:
        with _refusals():
            for packet in self._stream.encode(frame):
                self._container.mux(packet)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except av.FFmpegError as error:
        raise GenerationError(f"the audio could not be encoded: {error.strerror}") from error
