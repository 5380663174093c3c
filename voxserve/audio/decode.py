"""Recordings of the common formats to mono samples. The cap on their length holds while decoding.

What a file is, its first bytes decide, never its name or the decoders' own guessing.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import soundfile  # type: ignore[import-untyped]
from numpy.typing import NDArray

from voxserve.errors import InvalidRequestError
from voxserve.requests import Float32Array

SPARE_S = 0.06
"""So much more is no offence, and cut off: compressed formats pad a recording by up to this."""
FORMATS = "wav, flac, ogg, mp3, aiff, m4a, webm or aac"
LOW_HZ, HIGH_HZ = 8_000, 192_000
MAX_CHANNELS = 8
_BLOCK_FRAMES = 16_384
_UNKNOWN_SIZE = 0x7FFF_0000
"""Sizes from here on are what programs write into a WAV header before they know the size."""

# Demuxers by their ffmpeg names; the first five are libsndfile's too.
_SNDFILE = ("wav", "flac", "ogg", "mp3", "aiff")


@dataclass(frozen=True, slots=True)
class Recording:
    """audio: [samples] float32 mono, not yet limited to [-1, 1]."""

    audio: Float32Array
    rate_hz: int


def decode(data: bytes, longest_s: float) -> Recording:
    """Decode and mix down to one channel.

    Raises InvalidRequestError (`ref_audio_invalid`, `ref_audio_too_long`) with what is wrong.
    """
    kind = kind_of(data)
    if kind is None:
        raise invalid(f"the recording is not {FORMATS}")
    if kind == "wav" and (missing := _missing_bytes(data)):
        raise invalid(f"the recording is cut short, {missing} bytes are missing")
    if kind in _SNDFILE:
        try:
            return _by_sndfile(data, longest_s)
        except soundfile.LibsndfileError:
            pass  # Another codec inside, such as ADPCM or Opus for an old libsndfile.
    return _by_av(data, kind, longest_s)


def kind_of(data: bytes) -> str | None:
    """The demuxer for a file that begins like this; None for what is not taken."""
    head = data[:12]
    if head[:4] in (b"RIFF", b"RF64") and head[8:] == b"WAVE":
        return "wav"
    if head[:4] == b"FORM" and head[8:] in (b"AIFF", b"AIFC"):
        return "aiff"
    if head[4:8] == b"ftyp":
        return "mp4"
    starts = {b"fLaC": "flac", b"OggS": "ogg", b"ID3": "mp3", b"\x1a\x45\xdf\xa3": "matroska"}
    for start, kind in starts.items():
        if head.startswith(start):
            return kind
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return "mp3" if head[1] & 0x06 else "aac"
    return None


def invalid(what: str) -> InvalidRequestError:
    return InvalidRequestError(what, param="ref_audio", code="ref_audio_invalid")


def too_long(seconds: float | None, longest_s: float) -> InvalidRequestError:
    """seconds: None when decoding was stopped at the limit."""
    has = f"more than {longest_s:g}" if seconds is None else f"{seconds:.2f}"
    return InvalidRequestError(
        f"the recording has {has} s, at most {longest_s:g} s",
        param="ref_audio",
        code="ref_audio_too_long",
    )


def _by_sndfile(data: bytes, longest_s: float) -> Recording:
    """Raises soundfile.LibsndfileError when libsndfile cannot read it."""
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        rate_hz, announced = file.samplerate, file.frames
        _check_shape(rate_hz, file.channels)
        if announced > (longest_s + SPARE_S) * rate_hz:
            raise too_long(announced / rate_hz, longest_s)
        blocks = file.blocks(_BLOCK_FRAMES, dtype="float32", always_2d=True)
        audio = _gather((block.mean(axis=1) for block in blocks), rate_hz, longest_s)
        if len(audio) < announced and file.format == "FLAC":
            raise invalid(
                f"the recording is cut short: {len(audio) / rate_hz:.2f} s of "
                f"{announced / rate_hz:.2f} s can be decoded"
            )
    return Recording(audio, rate_hz)


def _by_av(data: bytes, demuxer: str, longest_s: float) -> Recording:
    import av

    try:
        # The protocol list keeps a playlist or reference inside from being opened.
        options = {"protocol_whitelist": "none"}
        with av.open(io.BytesIO(data), "r", format=demuxer, container_options=options) as container:
            if not container.streams.audio:
                raise invalid("the recording has no audio track")
            context = container.streams.audio[0].codec_context
            rate_hz = context.sample_rate
            _check_shape(rate_hz, context.channels)
            frames = container.decode(audio=0)
            audio = _gather(_mono(frames, rate_hz), rate_hz, longest_s)
    except (av.FFmpegError, ValueError) as error:
        raise invalid(f"the recording ({demuxer}) cannot be decoded") from error
    return Recording(audio, rate_hz)


def _mono(frames: Any, rate_hz: int) -> Iterator[Float32Array]:
    import av

    planar = av.AudioResampler(format="fltp")
    for frame in frames:
        if frame.sample_rate != rate_hz:
            raise invalid(f"the recording changes its rate from {rate_hz} to {frame.sample_rate}")
        for part in planar.resample(frame):
            yield part.to_ndarray().mean(axis=0)


def _gather(blocks: Iterator[NDArray[np.floating[Any]]], rate_hz: int, longest_s: float) -> Any:
    """One float32 array of all blocks; stops at the first sample beyond the limit."""
    kept: list[NDArray[np.floating[Any]]] = [np.zeros(0, np.float32)]
    count = 0
    for block in blocks:
        count += len(block)
        if count > (longest_s + SPARE_S) * rate_hz:
            raise too_long(None, longest_s)
        kept.append(block)
    return np.concatenate(kept).astype(np.float32)


def _check_shape(rate_hz: int, channels: int) -> None:
    if not LOW_HZ <= rate_hz <= HIGH_HZ:
        raise invalid(f"the recording has {rate_hz} Hz, must have {LOW_HZ} to {HIGH_HZ} Hz")
    if not 1 <= channels <= MAX_CHANNELS:
        raise invalid(f"the recording has {channels} channels, at most {MAX_CHANNELS}")


def _missing_bytes(data: bytes) -> int:
    """How many bytes the data chunk of a WAV file lacks of what it announces."""
    at = 12
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"data":
            known = 0 < size < _UNKNOWN_SIZE
            return max(0, size - (len(data) - at - 8)) if known else 0
        at += 8 + size + size % 2
    return 0
