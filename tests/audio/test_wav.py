import io
import wave

import pytest

from voxserve.audio import wav


@pytest.mark.parametrize("samples", [0, 1, 1000])
@pytest.mark.parametrize("rate_hz", [8000, 24_000, 48_000])
def test_header_is_read_by_the_standard_library(samples: int, rate_hz: int) -> None:
    data = wav.header(rate_hz, 2 * samples) + bytes(2 * samples)
    with wave.open(io.BytesIO(data)) as file:
        assert file.getparams()[:4] == (1, 2, rate_hz, samples)


def test_header_of_unknown_length() -> None:
    header = wav.header(24_000, None)
    assert len(header) == wav.HEADER_BYTES
    assert header[4:8] == header[40:44] == b"\xff" * 4


def test_header_goes_out_with_the_first_audio_only() -> None:
    encoder = wav.WavEncoder(24_000)
    first, second = encoder.feed(b"ab"), encoder.feed(b"cd")
    assert first == wav.header(24_000, None) + b"ab"
    assert second == b"cd"
    assert encoder.finish() == b""


def test_stream_without_audio_is_its_header() -> None:
    assert wav.WavEncoder(24_000).finish() == wav.header(24_000, None)


def test_whole_file_tells_its_length() -> None:
    encoder = wav.WavEncoder(24_000, whole=True)
    assert encoder.feed(b"ab") == encoder.feed(b"cd") == b""
    assert encoder.finish() == wav.header(24_000, 4) + b"abcd"
