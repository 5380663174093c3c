"""What each response format costs: delay until it can be played, CPU, bytes.

    python benchmarks/audio_formats.py [--step-ms 20] [--seconds 10]

PCM goes in at the pace at which it is heard, `step-ms` at a time; after each piece FFmpeg decodes
all that came out so far. One thread, no server. It prints one JSON line and ends with code 1 if a
format holds back more than is allowed.
"""

import argparse
import io
import json
import platform
import sys
import time
from dataclasses import asdict, dataclass

import av
import numpy as np
from numpy.typing import NDArray

from voxserve.audio.output import Output, output_for

Int16Array = NDArray[np.int16]

RATE_HZ = 24_000
SECONDS = 10.0
ALLOWED_MS = {"pcm": 0.0, "wav": 0.0, "opus": 60.0, "mp3": 100.0, "aac": 100.0, "flac": 100.0}


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    rate_hz: int | None = None
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Result:
    """first_ms: how much later than with pcm a decoder first gives sound, in terms of audio.
    holds_ms: the most that has gone in and cannot be heard yet, at any time. late_ms: the same for
    the speech itself, which mp3 and aac put behind a silence of their own. encode_ms: the longest
    that one piece took. cpu_ms: of this thread, for a second of audio in.
    """

    format: str
    sample_rate: int
    speed: float
    first_ms: float
    holds_ms: float
    late_ms: float
    encode_ms: float
    cpu_ms: float
    kbit_s: float


CASES = (
    *(Case(name) for name in ALLOWED_MS),
    *(Case("pcm", rate_hz) for rate_hz in (8000, 16_000, 22_050, 44_100, 48_000)),
    *(Case("pcm", None, speed) for speed in (0.25, 0.5, 1.5, 2.0, 4.0)),
    Case("mp3", 44_100, 1.25),
)


def speech(seconds: float) -> Int16Array:
    """Not speech, but as busy: a gliding voice, breath, and a pause in every second."""
    t = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    phase = np.cumsum(140 + 30 * np.sin(2 * np.pi * 0.6 * t)) / RATE_HZ
    tone = np.sum([np.sin(2 * np.pi * k * phase) / k for k in range(1, 20)], axis=0)
    breath = np.random.default_rng(0).standard_normal(len(t))
    loudness = np.clip(1.2 * np.sin(np.pi * t) ** 2, 0, 1)
    samples: Int16Array = np.rint(3000 * loudness * (tone + 0.3 * breath)).astype(np.int16)
    return samples


def decoded(data: bytes, case: Case, output: Output) -> Int16Array:
    """All samples that a decoder gives for the beginning of a stream."""
    if case.name == "pcm":
        return np.frombuffer(data, "<i2")
    pieces = [np.zeros(0, np.int16)]
    try:
        with av.open(io.BytesIO(data), "r") as file:
            plain = av.AudioResampler("s16", "mono", output.sample_rate_hz)
            for frame in file.decode(audio=0):
                pieces += [made.to_ndarray()[0] for made in plain.resample(frame)]
    except (av.InvalidDataError, av.EOFError):
        pass
    return np.concatenate(pieces)


def silence_s(case: Case, output: Output, samples: Int16Array) -> float:
    """What a format puts in front of the speech."""
    stream = output.open(whole=False)
    data = stream.feed(samples.tobytes()).data + stream.finish().data
    stream.close()
    made = decoded(data, case, output).astype(np.float64)
    if output.sample_rate_hz != RATE_HZ or case.speed != 1.0:
        made = made[:: output.sample_rate_hz // RATE_HZ] if case.name == "opus" else made[:0]
    if not len(made):
        return 0.0
    part = samples[12_000:36_000].astype(np.float64)
    return (int(np.argmax(np.correlate(made[:48_000], part, "valid"))) - 12_000) / RATE_HZ


def measure(case: Case, samples: Int16Array, step_ms: int) -> Result:
    output = output_for(case.name, RATE_HZ, case.rate_hz, case.speed)
    step = RATE_HZ * step_ms // 1000
    stream = output.open(whole=False)
    data, cpu_s, longest_s, first_s, holds_s = b"", 0.0, 0.0, 0.0, 0.0
    for at in range(0, len(samples), step):
        begin, cpu = time.perf_counter(), time.thread_time()
        data += stream.feed(samples[at : at + step].tobytes()).data
        cpu_s += time.thread_time() - cpu
        longest_s = max(longest_s, time.perf_counter() - begin)
        if (
            at >= RATE_HZ
        ):  # the delay is the same all the time, and decoding is not what is measured
            continue
        fed_s = (at + step) / RATE_HZ
        heard_s = len(decoded(data, case, output)) / output.sample_rate_hz * case.speed
        if heard_s and not first_s:
            first_s = fed_s
        holds_s = max(holds_s, fed_s - heard_s)
    cpu = time.thread_time()
    data += stream.finish().data
    cpu_s += time.thread_time() - cpu
    stream.close()
    seconds = len(samples) / RATE_HZ
    return Result(
        format=case.name,
        sample_rate=output.sample_rate_hz,
        speed=case.speed,
        first_ms=round(1000 * first_s - max(step_ms, 20), 1),
        holds_ms=round(1000 * holds_s, 1),
        late_ms=round(1000 * (holds_s + silence_s(case, output, samples)), 1),
        encode_ms=round(1000 * longest_s, 1),
        cpu_ms=round(1000 * cpu_s / seconds, 2),
        kbit_s=round(len(data) * 8 / 1000 / seconds * case.speed, 1),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step-ms", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    chosen = parser.parse_args()
    samples = speech(chosen.seconds)
    results = [measure(case, samples, chosen.step_ms) for case in CASES]
    # The formats as they are come first.
    pairs = zip(ALLOWED_MS.items(), results, strict=False)
    over = [name for (name, allowed_ms), one in pairs if one.holds_ms > allowed_ms]
    print(
        json.dumps(
            {
                "step_ms": chosen.step_ms,
                "av": av.__version__,
                "machine": platform.machine(),
                "over": over,
                "results": [asdict(one) for one in results],
            }
        )
    )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
