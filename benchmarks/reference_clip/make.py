"""Make the reference clip of the cloning benchmarks: `python benchmarks/reference_clip/make.py`.

The embedded voice speaks the transcript a little faster than by default, and exactly 6.9 s around
the speech are kept, at 16 kHz and 16 bits. Another version of the voice would make another clip:
results name the hash of the one they were measured with, which README.md holds.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile  # type: ignore[import-untyped]

HERE = Path(__file__).parent
RATE_HZ = 16_000
SAMPLES = 110_400
SPEED = 1.03
SILENT = 0.004
"""Root mean square of a hundredth of a second that holds no speech."""


def main() -> None:
    text = (HERE / "transcript.txt").read_text(encoding="utf-8").strip()
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "said.wav"
        say = [sys.executable, "-m", "voxserve", "say", text, "--output", str(made)]
        options = ["--sample-rate", str(RATE_HZ), "--speed", str(SPEED), "--seed", "1"]
        subprocess.run([*say, *options], check=True)
        audio, rate_hz = soundfile.read(made, dtype="int16")
    assert rate_hz == RATE_HZ
    step = RATE_HZ // 100
    parts = audio[: len(audio) // step * step].reshape(-1, step) / 32768
    loud = np.flatnonzero(np.sqrt((parts**2).mean(axis=1)) > SILENT)
    first, last = int(loud[0]) * step, int(loud[-1] + 1) * step
    spare = SAMPLES - (last - first)
    assert 0 <= spare < RATE_HZ // 10, f"the speech lasts {(last - first) / RATE_HZ} s"
    begin = first - spare // 2
    clip = audio[begin : begin + SAMPLES]
    assert len(clip) == SAMPLES
    soundfile.write(HERE / "clip.wav", clip, RATE_HZ, subtype="PCM_16")
    print(hashlib.sha256((HERE / "clip.wav").read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
