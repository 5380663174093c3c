import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from tests.audio.recordings import RATE_HZ, containing, noise, sounding, tone
from voxserve.audio import reference
from voxserve.audio.decode import MAX_CHANNELS, kind_of
from voxserve.audio.reference import MAX_CLIP_BYTES, read_apart, read_reference
from voxserve.errors import InvalidRequestError

READ = {
    "wav": lambda: sounding(tone(2, 24_000), 24_000),
    "float wav": lambda: sounding(tone(2, 24_000), 24_000, subtype="FLOAT"),
    "96 kHz 5.1 wav": lambda: sounding(tone(2, 96_000, 6), 96_000),
    "8 kHz law wav": lambda: sounding(tone(2, 8_000), 8_000, subtype="ULAW"),
    "flac": lambda: sounding(tone(2, 44_100, 2), 44_100, "FLAC"),
    "vorbis": lambda: sounding(tone(2, 48_000), 48_000, "OGG"),
    "opus": lambda: sounding(tone(2, 48_000), 48_000, "OGG", "OPUS"),
    "mp3": lambda: containing(tone(2, 24_000), 24_000, "mp3", "libmp3lame"),
    "aiff": lambda: sounding(tone(2, 22_050), 22_050, "AIFF"),
    "m4a": lambda: containing(tone(2, 48_000, 2), 48_000, "mp4", "aac"),
    "aac": lambda: containing(tone(2, 24_000), 24_000, "adts", "aac"),
    "webm": lambda: containing(tone(2, 48_000), 48_000, "webm", "libopus"),
}
REFUSED: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "nothing": (lambda: b"", "ref_audio_invalid", "is not wav"),
    "text": (lambda: b"Hello there. " * 50, "ref_audio_invalid", "is not wav"),
    "midi": (lambda: b"MThd" + bytes(100), "ref_audio_invalid", "is not wav"),
    "playlist": (lambda: b"#EXTM3U\nhttp://127.0.0.1/", "ref_audio_invalid", "is not wav"),
    "short": (lambda: noise(0.2), "ref_audio_invalid", "has 0.20 s, at least 1 s"),
    "long": (lambda: noise(45), "ref_audio_too_long", "has 45.00 s, at most 30 s"),
    "long m4a": (
        lambda: containing(tone(31, 8_000), 8_000, "mp4", "aac"),
        "ref_audio_too_long",
        "has more than 30 s, at most 30 s",
    ),
    "silence": (lambda: sounding(tone(2, 8_000) * 0, 8_000), "ref_audio_invalid", "silent"),
    "hum": (lambda: sounding(tone(2, 8_000) * 1e-3, 8_000), "ref_audio_invalid", "-69 dB"),
    "cut wav": (lambda: noise(2)[:-1000], "ref_audio_invalid", "1000 bytes are missing"),
    "cut flac": (
        lambda: sounding(tone(2, 8_000), 8_000, "FLAC")[:-2000],
        "ref_audio_invalid",
        "the recording",
    ),
    "4 kHz": (lambda: sounding(tone(2, 4_000), 4_000), "ref_audio_invalid", "has 4000 Hz"),
    "channels": (
        lambda: sounding(tone(1, 8_000, MAX_CHANNELS + 1), 8_000),
        "ref_audio_invalid",
        "has 9 channels, at most 8",
    ),
    "not numbers": (
        lambda: sounding(tone(2, 8_000), 8_000, subtype="FLOAT")[:-4] + b"\0\0\xc0\x7f",
        "ref_audio_invalid",
        "no numbers",
    ),
    "big": (lambda: bytes(MAX_CLIP_BYTES + 1), "ref_audio_too_large", f"at most {MAX_CLIP_BYTES}"),
    "damaged webm": (
        lambda: b"\x1a\x45\xdf\xa3" + bytes(200),
        "ref_audio_invalid",
        "cannot be decoded",
    ),
}
HEADS = (
    b"RIFF\0\0\0\0WAVE",
    b"fLaC",
    b"OggS",
    b"ID3",
    b"\xff\xfb",
    b"\xff\xf1",
    b"FORM\0\0\0\0AIFF",
)


@pytest.mark.parametrize("name", READ)
def test_formats_become_mono_at_the_wanted_rate(name: str) -> None:
    audio = read_reference(READ[name](), RATE_HZ)
    assert audio.dtype == np.float32 and audio.ndim == 1
    # Frames of mp3 and aac round the length up.
    assert 2.0 <= len(audio) / RATE_HZ < 2.1
    middle = audio[RATE_HZ // 2 : RATE_HZ * 3 // 2]
    assert np.abs(middle).max() == pytest.approx(0.5, abs=0.05)
    spectrum = np.abs(np.fft.rfft(middle))
    assert spectrum.argmax() == 440


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_figure_and_the_limit(name: str) -> None:
    make, code, said = REFUSED[name]
    with pytest.raises(InvalidRequestError) as refused:
        read_reference(make(), RATE_HZ)
    assert (refused.value.code, refused.value.param) == (code, "ref_audio")
    assert said in refused.value.message


@pytest.mark.parametrize("head", HEADS)
def test_garbage_behind_a_good_head_is_refused(head: bytes) -> None:
    generator = np.random.default_rng(1)
    data = head + generator.bytes(5_000)
    assert kind_of(data)
    with pytest.raises(InvalidRequestError):
        read_reference(data, RATE_HZ)


def test_wav_of_unknown_size_is_read() -> None:
    """As this server streams them."""
    data = bytearray(noise(2))
    data[4:8] = data[40:44] = b"\xff\xff\xff\xff"
    assert len(read_reference(bytes(data), RATE_HZ)) == 2 * RATE_HZ


def test_clip_of_exactly_the_limit_stays_within_it() -> None:
    for rate_hz in (11_025, 44_100):
        audio = read_reference(sounding(tone(30, rate_hz), rate_hz), RATE_HZ)
        assert len(audio) <= 30 * RATE_HZ


def test_a_bomb_is_stopped_while_it_decodes() -> None:
    """Ten minutes of silence in 60 kB, longer than its header says."""
    bomb = sounding(np.zeros((600 * 8_000, 1), np.float32), 8_000, "FLAC")
    with pytest.raises(InvalidRequestError) as refused:
        read_reference(bomb, RATE_HZ)
    assert refused.value.code == "ref_audio_too_long"
    unknown = bytearray(bomb)
    unknown[21] &= 0xF0
    unknown[22:26] = bytes(4)
    with pytest.raises(InvalidRequestError) as refused:
        read_reference(bytes(unknown), RATE_HZ)
    assert refused.value.code == "ref_audio_too_long"


def test_the_process_apart_gives_the_same() -> None:
    data = noise(1.5, 16_000)
    apart = asyncio.run(read_apart(data, RATE_HZ))
    assert np.array_equal(apart, read_reference(data, RATE_HZ))
    with pytest.raises(InvalidRequestError) as refused:
        asyncio.run(read_apart(noise(0.5), RATE_HZ))
    assert refused.value.code == "ref_audio_invalid" and "0.50 s" in refused.value.message


def test_the_process_apart_has_no_time_to_waste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "TIMEOUT_S", 0.01)
    with pytest.raises(InvalidRequestError) as refused:
        asyncio.run(read_apart(noise(2), RATE_HZ))
    assert "0.01 s to decode" in refused.value.message
