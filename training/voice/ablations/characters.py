"""Letters in place of phonemes as what the language model reads.

The teacher says how long each phoneme lasts, and nothing says which letters spell it. So each
word's time is spread evenly over its letters (a letter may get none), marks and spaces keep theirs,
and the model learns from the letters around what is said in which part of a word's time.
"""

import gzip
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

EDGE = 0
LETTERS = " .,;:!?…—'-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SYMBOLS = {letter: number for number, letter in enumerate(LETTERS, 1)}
_WORD = re.compile(r"[^ .,;:!?…—\"()“”]+")


def symbols(text: str) -> list[int]:
    """Text in words to symbols, with an edge on both sides; what is not in LETTERS is left out."""
    return [EDGE, *(_SYMBOLS[letter] for letter in text if letter in _SYMBOLS), EDGE]


@dataclass(frozen=True)
class Groups:
    """Words and what lies between them, in turn: where each begins, [G + 1] places with the end, in
    the phonemes and in the letters, both with their edges. Words are groups 1, 3, 5, ..."""

    phonemes: np.ndarray
    letters: np.ndarray


def align(phonemes: str, text: str) -> Groups | None:
    """Word by word; None when the two differ in their number or the text has other letters."""
    said, written = list(_WORD.finditer(phonemes)), list(_WORD.finditer(text))
    if not said or len(said) != len(written) or not set(text) <= set(LETTERS):
        return None
    places = []
    for words, whole in ((said, phonemes), (written, text)):
        ends = [1 + place for word in words for place in word.span()]
        places.append(np.array([0, *ends, len(whole) + 2]))
    return Groups(*places)


def spread(values: np.ndarray, groups: Groups, *, whole: bool) -> np.ndarray:
    """Durations of the phonemes [N] to durations of the letters [M]; whole: in whole units, with
    the same sum in every group."""
    totals = np.add.reduceat(values.astype(np.float64), groups.phonemes[:-1])
    counts = np.diff(groups.letters)
    own = np.repeat(np.arange(len(counts)), counts)
    at = np.arange(len(own)) - groups.letters[own]
    begin, end = (totals[own] * place / counts[own] for place in (at, at + 1))
    out = (end.round() - begin.round()) if whole else end - begin
    # Between words mostly the same marks stand in both: these keep their own durations.
    kept = (counts == np.diff(groups.phonemes))[own] & (own % 2 == 0)
    out[kept] = values[(groups.phonemes[own] + at)[kept]]
    return out.astype(values.dtype)


def whole_units(natural: Tensor) -> Tensor:
    """Predicted durations [B, N] to whole units: rounded at the ends, so that shares add up."""
    ends = natural.double().cumsum(1).round().long()
    return torch.cat([ends[:, :1], ends.diff()], 1)


class Spelling:
    """The sentences that were rendered, by number. file: `id<TAB>phonemes<TAB>text`, gzip."""

    def __init__(self, file: Path) -> None:
        self._sentences: dict[int, tuple[str, str]] = {}
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                index, phonemes, text = line.rstrip("\n").split("\t")
                self._sentences[int(index)] = (phonemes, text)

    def __call__(self, index: int, units: Tensor, natural: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Symbols, units and natural units of a sentence's letters."""
        phonemes, text = self._sentences[index]
        groups = align(phonemes, text)
        if groups is None:
            raise ValueError(f"sentence {index} has other words than its phonemes: {text}")
        return (
            torch.tensor(symbols(text)),
            torch.from_numpy(spread(units.numpy(), groups, whole=True)),
            torch.from_numpy(spread(natural.numpy(), groups, whole=False)),
        )
