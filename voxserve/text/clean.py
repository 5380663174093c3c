"""Text as the models get it: composed, trimmed, free of what no tokenizer can take.

`clean` does it for a whole text, `LiveCleaner` for one that arrives in pieces cut anywhere; the
pieces together give the same characters.
"""

import unicodedata

from voxserve.errors import InvalidRequestError

_SENTENCE_ENDS = ".!?…。！？．؟۔।॥"
_CLOSERS = "\"'”’»」』）)]}"
_SPOKEN_SIGNS = "%&+=@"
_LONGEST_CLUSTER = 32


def clean(text: str) -> str:
    """NFC-compose and trim white space and invisible characters at both ends; may return "".

    Raises InvalidRequestError on NUL and on half a surrogate pair.
    """
    _refuse_unspeakable_code_points(text)
    return _trim(unicodedata.normalize("NFC", text))


def speakable(text: str) -> bool:
    """Whether there is anything to pronounce: a letter, a digit, a currency or spoken sign."""
    return any(_is_spoken(character) for character in text)


def ends_sentence(text: str) -> bool:
    """Whether the text so far ends with a sentence mark, closing quotes and spaces aside."""
    return text.rstrip().rstrip(_CLOSERS).endswith(tuple(_SENTENCE_ENDS))


class LiveCleaner:
    """`clean` for pieces: holds back what the next piece may still change.

    Held back are half a surrogate pair, the last base character with its marks (a mark that
    follows would compose with it) and trailing white space (trimmed if nothing follows). A piece
    that is refused changes nothing.
    """

    def __init__(self) -> None:
        self._held = ""
        self._begun = False

    def feed(self, piece: str) -> str:
        """The characters that are settled now. Raises InvalidRequestError as `clean` does."""
        text = _join_surrogates(self._held + piece)
        half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = text[: len(text) - len(half)]
        _refuse_unspeakable_code_points(text)
        settled = _settled_length(text)
        self._held = text[settled:] + half
        return self._release(text[:settled])

    def end(self) -> str:
        """The rest. Raises InvalidRequestError when half a surrogate pair is left."""
        rest, self._held = self._held, ""
        _refuse_unspeakable_code_points(rest)
        return self._release(_trim_end(rest))

    def _release(self, text: str) -> str:
        composed = unicodedata.normalize("NFC", text)
        if not self._begun:
            composed = _trim_start(composed)
            self._begun = bool(composed)
        return composed


def _settled_length(text: str) -> int:
    trimmed = len(_trim_end(text))
    if trimmed < len(text):
        return trimmed
    for back in range(1, min(_LONGEST_CLUSTER, len(text)) + 1):
        if _starts_cluster(text[-back]):
            return len(text) - back
    return max(0, len(text) - _LONGEST_CLUSTER)


def _starts_cluster(character: str) -> bool:
    """Whether it can never compose with what stands before it (marks and vowel jamo can)."""
    is_joining_jamo = "\u1160" <= character <= "\u11ff"
    return not unicodedata.category(character).startswith("M") and not is_joining_jamo


def _join_surrogates(text: str) -> str:
    if text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _refuse_unspeakable_code_points(text: str) -> None:
    if "\0" in text:
        raise InvalidRequestError("input holds the character NUL", param="input")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRequestError("input holds half a surrogate pair", param="input")


def _is_spoken(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LN" or category == "Sc" or character in _SPOKEN_SIGNS


def _is_trimmed(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "Z" or category in ("Cc", "Cf")


def _trim_start(text: str) -> str:
    start = 0
    while start < len(text) and _is_trimmed(text[start]):
        start += 1
    return text[start:]


def _trim_end(text: str) -> str:
    end = len(text)
    while end and _is_trimmed(text[end - 1]):
        end -= 1
    return text[:end]


def _trim(text: str) -> str:
    return _trim_end(_trim_start(text))
