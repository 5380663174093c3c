import gc
import hashlib
import struct

import numpy as np
import psutil
import pytest

from tests.audio.sounds import RATE_HZ, Int16Array, decode, snr_db, voice
from voxserve.audio.compressed import CODECS, CompressedEncoder
from voxserve.audio.formats import FORMATS

SAMPLES = voice(150, 1.0)
PAIRS = [
    (name, rate_hz)
    for name in CODECS
    for rate_hz in FORMATS[name].encodes_hz or (8000, 16_000, 22_050, 24_000, 44_100, 48_000)
]


def encoded(name: str, samples: Int16Array, rate_hz: int, *, whole: bool) -> bytes:
    encoder = CompressedEncoder(name, rate_hz, rate_hz, whole=whole)
    step = rate_hz * 80 // 1000
    data = b"".join(
        encoder.feed(samples[at : at + step].tobytes()) for at in range(0, len(samples), step)
    )
    data += encoder.finish()
    encoder.close()
    return data


def best_snr_db(wanted: Int16Array, got: Int16Array) -> float:
    """At the shift that fits best: some formats begin with up to 0.2 s of silence of their own."""
    inner = wanted[2000:-2000].astype(np.float64)
    start = int(np.argmax(np.correlate(got.astype(np.float64), inner, "valid")))
    return snr_db(inner.astype(np.int16), got[start : start + len(inner)])


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("name", "rate_hz"), PAIRS)
def test_decodes_to_what_went_in(name: str, rate_hz: int, whole: bool) -> None:
    samples = voice(150, 1.0, rate_hz)
    made, made_hz = decode(encoded(name, samples, rate_hz, whole=whole))
    if name == "opus":
        assert made_hz == 48_000
        made, made_hz = made[:: 48_000 // rate_hz], rate_hz
    assert made_hz == rate_hz
    # Whole frames, and what the encoder puts in front.
    assert 0 <= len(made) / rate_hz - 1.0 <= (0.18 if rate_hz == 8000 else 0.1)
    if name == "flac":
        assert np.array_equal(made, samples)
    else:
        assert best_snr_db(samples, made) > 15


@pytest.mark.parametrize("name", CODECS)
def test_most_of_a_stream_is_out_before_its_end(name: str) -> None:
    encoder = CompressedEncoder(name, RATE_HZ, RATE_HZ, whole=False)
    data = encoder.feed(SAMPLES[:19_200].tobytes())
    assert len(decode(data)[0]) >= 0.7 * decode(data)[1]
    encoder.close()


def test_mp3_stream_is_frames_alone() -> None:
    data = encoded("mp3", SAMPLES, RATE_HZ, whole=False)
    assert data[:2] == b"\xff\xf3"
    assert b"Xing" not in data and b"Info" not in data and b"ID3" not in data and b"TAG" not in data
    assert b"Info" in encoded("mp3", SAMPLES, RATE_HZ, whole=True)[:200]


def test_aac_is_adts_from_the_first_byte() -> None:
    data = encoded("aac", SAMPLES, RATE_HZ, whole=False)
    at = frames = 0
    while at < len(data):
        assert data[at] == 0xFF and data[at + 1] & 0xF6 == 0xF0
        at += (data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5
        frames += 1
    assert at == len(data) and frames * 1024 >= len(SAMPLES)


def test_ogg_pages_hold_20_ms() -> None:
    data = encoded("opus", SAMPLES, RATE_HZ, whole=False)
    heads = [at for at in range(len(data)) if data.startswith(b"OggS", at)]
    positions = [struct.unpack("<q", data[at + 6 : at + 14])[0] for at in heads]
    assert positions[:2] == [0, 0]  # the two headers
    assert max(np.diff(positions)) <= 48_000 * 0.02
    assert data[heads[-1] + 5] & 4, "the last page says so"


@pytest.mark.parametrize("samples", [1, 577, 24_000])
def test_whole_flac_tells_its_length_and_checksum(samples: int) -> None:
    data = encoded("flac", SAMPLES[:samples], RATE_HZ, whole=True)
    info = data[8 : 8 + 34]
    assert data[:4] == b"fLaC"
    assert int.from_bytes(info[13:18]) & (2**36 - 1) == samples
    assert info[18:] == hashlib.md5(SAMPLES[:samples].tobytes()).digest()


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", CODECS)
def test_no_audio_at_all_is_a_moment_of_silence(name: str, whole: bool) -> None:
    made, rate_hz = decode(encoded(name, SAMPLES[:0], RATE_HZ, whole=whole))
    assert 0 < len(made) / rate_hz < 0.13
    assert not made.any()


@pytest.mark.parametrize("name", CODECS)
def test_given_up_encoders_leave_nothing(name: str) -> None:
    process, pcm = psutil.Process(), SAMPLES[:3840].tobytes()

    def give_up(times: int) -> int:
        for _ in range(times):
            encoder = CompressedEncoder(name, RATE_HZ, RATE_HZ, whole=False)
            encoder.feed(pcm)
            encoder.close()
            encoder.close()
        return process.memory_info().rss

    gc.disable()
    try:
        before = give_up(5)
        assert give_up(30) - before < 4 * 2**20
    finally:
        gc.enable()
