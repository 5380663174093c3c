"""Text to the ids of the checkpoint's BPE while it arrives, given away bit by bit."""

from voxserve.text.bpe import TextTokens
from voxserve.text.clean import LiveCleaner

LONGEST_LIVE_WORD = 256
"""Characters of an unfinished word beyond which all of it waits for its end, so that no text makes
a piece slow. Only runs of signs get so long: words of letters are given away bit by bit."""


class LiveTokens:
    """Ids of a text that comes in pieces cut anywhere; together those of the whole text.

    Held back is only what later text could still change: the characters that `LiveCleaner` keeps,
    white space at the end with the word that touches it, and of a last unfinished word the ids
    that are not certain yet.
    """

    def __init__(self, tokens: TextTokens) -> None:
        self._tokens = tokens
        self._cleaner = LiveCleaner()
        self._text = ""
        self._given = 0

    def feed(self, piece: str) -> list[int]:
        """Ids that later text can no longer change. Raises InvalidRequestError as `clean` does."""
        self._text += self._cleaner.feed(piece)
        words = self._tokens.cut(self._text)
        closed = self._closed(words)
        ids = [i for word in words[:closed] for i, _ in self._tokens.words.parts(word)]
        ready = ids[self._given :]
        self._given = max(self._given - len(ids), 0)
        self._text = "".join(words[closed:])
        if closed == len(words) - 1 and not words[-1][-1].isspace():
            ready += self._begun(words[-1])
        return ready

    def _begun(self, word: str) -> list[int]:
        """What is certain of the last, unfinished word; `_text` is that word."""
        if len(word) > LONGEST_LIVE_WORD:
            return []
        parts, certain = self._tokens.words.parts(word), self._tokens.words.settled(word)
        ready = [i for i, _ in parts[self._given : certain]]
        self._given = max(self._given, certain)
        if word.startswith("'"):
            return ready  # "'re" is a word of its own, whatever letter follows
        data = word.encode()
        for count in range(certain, 0, -1):
            size = sum(part for _, part in parts[:count])
            rest = data[size:].decode(errors="replace")
            if rest.isalpha():
                # A word of letters may go on from the middle as if it began there.
                self._text, self._given = rest, self._given - count
                break
        return ready

    def end(self) -> list[int]:
        """The rest."""
        self._text += self._cleaner.end()
        ids = self._tokens.encode(self._text)[self._given :]
        self._text, self._given = "", 0
        return ids

    def _closed(self, words: list[str]) -> int:
        """How many words are complete: all before the one that the text's last non-space is in,
        or that one too if a space follows it and does not belong to it."""
        solid, place = len(self._text.rstrip()), 0
        for number, word in enumerate(words):
            place += len(word)
            if place > solid or place == len(self._text):
                return number
        return len(words)
