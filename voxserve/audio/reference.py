"""Reference clips: what a recording must be like for a voice to be taken from it.

The decoders are C libraries that read bytes of strangers, so they run in a process of their own
(`python -m voxserve.audio.reference`): a crash, an endless loop or a bomb costs one request. That
process gets the bytes through a pipe, no environment, and limits on memory, time and files.
"""

import argparse
import asyncio
import json
import os
import resource
import sys

import numpy as np
import soxr  # type: ignore[import-untyped]

from voxserve.audio.decode import decode, invalid
from voxserve.errors import InvalidRequestError
from voxserve.requests import Float32Array

MAX_CLIP_BYTES = 10 * 2**20
MIN_CLIP_S, MAX_CLIP_S = 1.0, 30.0
QUIETEST_DB = -60.0
"""RMS level over the whole clip, dB below full scale."""
TIMEOUT_S = 10.0
_MORE_MEMORY_BYTES = 512 * 2**20
_REFUSED = 3
_PAGE_BYTES = resource.getpagesize()


def read_reference(data: bytes, rate_hz: int, longest_s: float = MAX_CLIP_S) -> Float32Array:
    """The clip as [samples] float32 mono in [-1, 1] at `rate_hz`.

    Raises InvalidRequestError (`ref_audio_invalid`, `ref_audio_too_long`, `ref_audio_too_large`)
    with the figure and its limit.
    """
    check_size(data)
    recording = decode(data, longest_s)
    audio = recording.audio
    seconds = len(audio) / recording.rate_hz
    if seconds < MIN_CLIP_S:
        raise invalid(f"the recording has {seconds:.2f} s, at least {MIN_CLIP_S:g} s")
    if not np.isfinite(audio).all():
        raise invalid("the recording holds samples that are no numbers")
    audio = audio.clip(-1.0, 1.0)
    level = float(np.sqrt(np.mean(np.square(audio, dtype=np.float64))))
    if level < 10 ** (QUIETEST_DB / 20):
        shown = f"{20 * np.log10(level):.0f} dB" if level else "0"
        raise invalid(f"the recording is silent: its level is {shown}, at least {QUIETEST_DB:g} dB")
    if recording.rate_hz != rate_hz:
        audio = soxr.resample(audio, recording.rate_hz, rate_hz, quality="HQ").clip(-1.0, 1.0)
    # Rounding of the resampler must not carry a clip of exactly the limit over it.
    kept: Float32Array = audio[: int(longest_s * rate_hz)].astype(np.float32)
    return kept


def check_size(data: bytes) -> None:
    """Raises InvalidRequestError (`ref_audio_too_large`)."""
    if len(data) > MAX_CLIP_BYTES:
        raise InvalidRequestError(
            f"the recording has {len(data)} bytes, at most {MAX_CLIP_BYTES}",
            param="ref_audio",
            code="ref_audio_too_large",
        )


async def read_apart(data: bytes, rate_hz: int, longest_s: float = MAX_CLIP_S) -> Float32Array:
    """`read_reference` in a process of its own, at most TIMEOUT_S long."""
    check_size(data)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "voxserve.audio.reference"),
        *("--rate-hz", str(rate_hz), "--longest-s", str(longest_s)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            said, _ = await process.communicate(data)
    except TimeoutError as error:
        raise invalid(f"the recording takes more than {TIMEOUT_S:g} s to decode") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == _REFUSED:
        refusal = json.loads(said)
        raise InvalidRequestError(refusal["message"], param="ref_audio", code=refusal["code"])
    if process.returncode != 0:
        raise invalid("the recording cannot be decoded")
    return np.frombuffer(said, np.float32)


def main() -> int:
    """Bytes of a recording on stdin; on stdout samples, or after a refusal the reason as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate-hz", type=int, required=True)
    parser.add_argument("--longest-s", type=float, required=True)
    arguments = parser.parse_args()
    _limit_resources()
    data = sys.stdin.buffer.read()
    try:
        audio = read_reference(data, arguments.rate_hz, arguments.longest_s)
    except InvalidRequestError as error:
        print(json.dumps({"message": error.message, "code": error.code}))
        return _REFUSED
    sys.stdout.buffer.write(audio.tobytes())
    return 0


def _limit_resources() -> None:
    """What is loaded so far and half a GiB more; no file may grow; seconds of processor time."""
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * _PAGE_BYTES
    seconds = int(TIMEOUT_S)
    for limit, value in (
        (resource.RLIMIT_AS, used + _MORE_MEMORY_BYTES),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))


if __name__ == "__main__":
    sys.exit(main())
