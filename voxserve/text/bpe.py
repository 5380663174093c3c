"""Text to the ids of a byte-level BPE whose words are cut as Qwen cuts them.

Built from a checkpoint's vocab.json and merges.txt. Control tokens spelled out in a text are read
as ordinary characters, so that no text can break a prompt. No torch.
"""

import json
import zlib
from bisect import bisect_left
from pathlib import Path
from typing import Protocol

from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Split

from voxserve.errors import CheckpointError

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen 2 cuts a text into words before BPE; merges never cross a cut."""

STAND_IN_BYTES = 6


class Words(Protocol):
    """A vocabulary over single words, as `TextTokens` needs it."""

    def parts(self, word: str) -> list[tuple[int, int]]:
        """(id, bytes of UTF-8 that it stands for) along one complete word."""

    def settled(self, word: str) -> int:
        """How many of the first parts of `word` stay, whatever is appended to the word."""


class BpeWords:
    """The checkpoint's own vocabulary."""

    def __init__(self, folder: Path) -> None:
        try:
            vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
            lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot read the tokenizer: {error}") from error
        pairs = [
            tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")
        ]
        self._bpe = Tokenizer(BPE(vocab=vocabulary, merges=pairs, fuse_unk=False))  # type: ignore[arg-type]
        self._bytes = ByteLevel(add_prefix_space=False, use_regex=False)
        self._bpe.pre_tokenizer = self._bytes
        self._sorted = sorted(vocabulary)
        self._longest = max(len(token) for token in vocabulary)

    def parts(self, word: str) -> list[tuple[int, int]]:
        encoded = self._bpe.encode(word, add_special_tokens=False)
        return [(i, len(t)) for i, t in zip(encoded.ids, encoded.tokens, strict=True)]

    def settled(self, word: str) -> int:
        """BPE of a text equals, up to any of its token boundaries, BPE of the text cut there.

        So the longer word's tokens are those of a shorter one up to where the token over the
        present end begins. That can be anywhere that some token goes on with what follows; what
        all these cases share is certain.
        """
        letters = "".join(part for part, _ in self._bytes.pre_tokenize_str(word))
        shared = self._tokens(letters)
        for start in range(len(letters) - 1, max(len(letters) - self._longest, -1), -1):
            if shared and self._begins_longer_token(letters[start:]):
                other = self._tokens(letters[:start])
                pairs = enumerate(zip(shared, other, strict=False))
                same = next((n for n, (a, b) in pairs if a != b), min(len(shared), len(other)))
                shared = shared[:same]
        return len(shared)

    def _tokens(self, letters: str) -> list[str]:
        return [token.value for token in self._bpe.model.tokenize(letters)] if letters else []

    def _begins_longer_token(self, letters: str) -> bool:
        place = bisect_left(self._sorted, letters)
        if place < len(self._sorted) and self._sorted[place] == letters:
            place += 1
        return place < len(self._sorted) and self._sorted[place].startswith(letters)


class StandInWords:
    """A vocabulary for dummy weights without files: about as many ids as the real one gives."""

    def __init__(self, size: int) -> None:
        self._size = size

    def parts(self, word: str) -> list[tuple[int, int]]:
        data = word.encode()
        pieces = [data[i : i + STAND_IN_BYTES] for i in range(0, len(data), STAND_IN_BYTES)]
        return [(zlib.crc32(piece) % self._size, len(piece)) for piece in pieces]

    def settled(self, word: str) -> int:
        return len(word.encode()) // STAND_IN_BYTES


class TextTokens:
    """Ids of whole texts."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self._split = Split(Regex(PATTERN), "isolated")

    def cut(self, text: str) -> list[str]:
        """The words of a text; together they are the text."""
        return [word for word, _ in self._split.pre_tokenize_str(text)]

    def encode(self, text: str) -> list[int]:
        return [i for word in self.cut(text) for i, _ in self.words.parts(word)]
