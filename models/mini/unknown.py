"""How a word that no lexicon holds is read: a small character transformer in numpy.

Its weights are those of the teacher's front end (hibari-tts, Apache-2.0; see NOTICE). The output
is in the manner of CTC: one symbol a place, repeats joined, blanks dropped.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
HEADS = 4
LAYERS = 4
_EPS = 1e-5


class Unknown:
    """Loads the arrays of `unknown.npz`. Raises OSError or ValueError when the file is damaged."""

    def __init__(self, file: Path) -> None:
        with np.load(file) as arrays:
            self._ids = {c: i + 1 for i, c in enumerate(arrays["characters"].tolist())}
            self._phonemes = ["", *arrays["phonemes"].tolist()]
            names = [n for n in arrays.files if n not in ("characters", "phonemes")]
            self._weights: dict[str, Array] = {n: arrays[n].astype(np.float32) for n in names}
        self._longest, self._width = self._weights["pos"].shape
        self._slots = self._weights["head"].shape[1] // len(self._phonemes)

    def read(self, word: str) -> str:
        """Phonemes of a word; "" when none of its characters is known."""
        ids = [self._ids[c] for c in word if c in self._ids][: self._longest]
        if not ids:
            return ""
        w = self._weights
        x = w["emb.weight"][ids] + w["pos"][: len(ids)]
        for layer in range(LAYERS):
            name = f"layers.{layer}"
            x = x + self._attend(self._norm(x, f"{name}.norm1"), name)
            inner = self._norm(x, f"{name}.norm2") @ w[f"{name}.up"] + w[f"{name}.linear1.bias"]
            x = x + _gelu(inner) @ w[f"{name}.down"] + w[f"{name}.linear2.bias"]
        logits = self._norm(x, "norm") @ w["head"] + w["head.bias"]
        best = logits.reshape(len(ids) * self._slots, -1).argmax(axis=1)
        changes = np.flatnonzero(np.diff(best, prepend=-1))
        return "".join(self._phonemes[i] for i in best[changes])

    def _norm(self, x: Array, name: str) -> Array:
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt(x.var(axis=-1, keepdims=True) + _EPS)
        out: Array = x * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return out

    def _attend(self, x: Array, name: str) -> Array:
        w = self._weights
        mixed = x @ w[f"{name}.qkv"] + w[f"{name}.self_attn.in_proj_bias"]
        split = mixed.reshape(len(x), 3, HEADS, -1).transpose(1, 2, 0, 3)
        scores = split[0] @ split[1].transpose(0, 2, 1) / np.sqrt(self._width // HEADS)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        looked = (scores / scores.sum(axis=-1, keepdims=True)) @ split[2]
        joined = looked.transpose(1, 0, 2).reshape(len(x), -1)
        out: Array = joined @ w[f"{name}.out"] + w[f"{name}.self_attn.out_proj.bias"]
        return out


def _gelu(x: Array) -> Array:
    """The tanh form; within 1e-3 of the exact one, which numpy lacks."""
    out: Array = 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
    return out
