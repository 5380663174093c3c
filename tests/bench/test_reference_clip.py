"""The committed reference clip is the one that its README names."""

import hashlib
from pathlib import Path

import soundfile  # type: ignore[import-untyped]

CLIP = Path(__file__).parents[2] / "benchmarks" / "reference_clip"


def test_the_clip_is_the_one_that_results_name() -> None:
    content = (CLIP / "clip.wav").read_bytes()
    assert hashlib.sha256(content).hexdigest() in (CLIP / "README.md").read_text(encoding="utf-8")
    found = soundfile.info(CLIP / "clip.wav")
    assert (found.frames, found.samplerate, found.channels) == (110_400, 16_000, 1)
    assert found.subtype == "PCM_16"
    assert len((CLIP / "transcript.txt").read_text(encoding="utf-8").split()) == 23
