"""Words to phonemes in the alphabet of misaki: a lexicon, endings, spelling out, and unknown words.

The readings are American. The lexicon is misaki's (Apache-2.0; see NOTICE); a word with several
readings takes one by the words beside it.
"""

import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from voxserve.models.mini.normalise import normalise
from voxserve.models.mini.tables import BEFORE_PAST, BEFORE_VERBS, DETERMINERS, SPELT
from voxserve.models.mini.unknown import Unknown

_VOWELS = frozenset("AIOQWYaiuæɑɒɔəɛɜɪʊʌᵻɐᵊ")
_VOICELESS = frozenset("ptkfθ")
_HISSING = frozenset("szʃʒʧʤ")
_FLAP_AFTER = frozenset("AIOWYiuæɑəɛɪɹʊʌ")
_MARKS = ".,;:!?…—"
_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*['’]?|[.,;:!?…—]|[-–]|\s+")
_LONGEST_ACRONYM = 5
GUESSES_KEPT = 4096
Entry = str | dict[str, str]


@dataclass(slots=True)
class Word:
    """A word of a sentence, or a mark. said: its phonemes, once they are known."""

    text: str
    spaced: bool
    said: str = ""

    @property
    def is_mark(self) -> bool:
        return self.text in _MARKS


class Reader:
    """Text to phonemes. folder holds `lexicon.xz` and `unknown.npz`.

    Raises OSError, ValueError or lzma.LZMAError when they are absent or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._lexicon: dict[str, Entry] = {}
        with lzma.open(folder / "lexicon.xz", "rt", encoding="utf-8") as lines:
            for line in lines.read().split("\n"):
                word, default, *others = line.split("\t")
                if others and others[0]:
                    tagged = dict(pair.split("=", 1) for pair in others[0].split(" "))
                    self._lexicon[word] = {"": default, **tagged}
                else:
                    self._lexicon[word] = default
        # A long text of one strange word should not take seconds.
        self._guess = lru_cache(GUESSES_KEPT)(Unknown(folder / "unknown.npz").read)

    def read(self, text: str) -> str:
        """Phonemes with spaces between words and marks behind them; "" if nothing can be said."""
        words = list(_words(normalise(text.capitalize() if _shouted(text) else text)))
        self._say(words)
        said = "".join(w.said + (" " if w.spaced and w.said else "") for w in words)
        return re.sub(r"\s+([.,;:!?…])", r"\1", said).strip().replace("ɾ", "T").replace("ʔ", "t")

    def _say(self, words: list[Word]) -> None:
        """From the last word to the first, since "the" and "to" depend on what follows."""
        vowel: bool | None = None
        for at in range(len(words) - 1, -1, -1):
            word = words[at]
            if word.is_mark:
                word.said = word.text
                vowel = None if word.text != "—" else vowel
                continue
            if word.text == "A" and at and not words[at - 1].is_mark:
                word.said = self._letters("A")  # a letter, as in "vitamin A"; the article is small
                vowel = True
                continue
            near = [w.text.lower() for w in words[max(0, at - 1) : at] if not w.is_mark]
            after = words[at + 1].text.lower() if at + 1 < len(words) else ""
            said = self._function_word(word.text, near, vowel)
            if said is None:
                said = self._word(word.text, _tags(word.text.lower(), near, after, vowel))
                said = _stressed(said) if word.text[:1].isupper() else said
            word.said = said
            first = next((c for c in word.said if c not in "ˈˌ"), None)
            vowel = vowel if first is None else first in _VOWELS

    def _function_word(self, word: str, before: list[str], vowel: bool | None) -> str | None:
        """Words whose reading depends on the sound behind them. vowel: None at the end."""
        lower = word.lower()
        if lower == "the":
            return "ði" if vowel else "ðə"
        if lower == "a" and vowel is not None:
            return "ɐ"
        if lower == "an":
            return "ɐn"
        if lower == "to":
            return {None: "tu", False: "tə", True: "tʊ"}[vowel]
        if lower == "in":
            return "ˈɪn" if vowel is None else "ɪn"
        if word == "I":
            return "ˌI"
        if lower == "am" and vowel is not None and before == ["i"]:
            return "ɐm"
        return None

    def _word(self, word: str, tags: tuple[str, ...]) -> str:
        """Phonemes of one word: as it is, lower-cased, with an ending, spelt out, or guessed."""
        bare = word.replace("’", "'")
        if bare in SPELT:
            return self._letters(bare)
        said = self._known(bare, tags)
        if said is not None:
            return said
        if self._spelt(bare):
            return self._letters(bare)
        for form in (bare.lower(), bare.capitalize()):
            said = self._known(form, tags) or self._with_ending(form, tags)
            if said:
                return said
        if bare.lower().endswith("'s"):
            return _with_s(self._word(bare[:-2], tags))
        return self._guess(bare) or self._letters(bare)

    def _known(self, word: str, tags: tuple[str, ...]) -> str | None:
        entry = self._lexicon.get(word)
        if entry is None:
            entry = self._lexicon.get(word.rstrip("'")) if word.endswith("'") else None
        if isinstance(entry, dict):
            return next((entry[tag] for tag in tags if tag in entry), entry[""])
        return entry

    def _spelt(self, word: str) -> bool:
        """Capitals that are no word of the lexicon, or without a vowel letter, are spelt out."""
        plural = len(word) > 2 and word.endswith("s")  # GPUs, A's; but not Is, As, Us
        letters = word[:-1].rstrip("'") if plural else word
        if not (letters.isupper() and letters.isascii() and letters.isalpha()):
            return False
        if len(letters) == 1 or not re.search("[AEIOUY]", letters):
            return True
        return len(letters) <= _LONGEST_ACRONYM and not self._known(word.lower(), ())

    def _letters(self, word: str) -> str:
        names = [self._known(c.upper(), ()) or "" for c in word.removesuffix("'s") if c.isalpha()]
        if word[-1:] == "s" and word[:-1].rstrip("'").isupper() and len(word) > 1:
            return _with_s(self._letters(word[:-1].rstrip("'")))
        if len(names) > 1:
            names = [name.replace("ˈ", "ˌ") for name in names[:-1]] + names[-1:]
        return "".join(names)

    def _with_ending(self, word: str, tags: tuple[str, ...]) -> str | None:
        """A known stem with 's, s, ed or ing."""
        for ending, join in (("'s", _with_s), ("s", _with_s), ("ed", _with_ed), ("ing", _with_ing)):
            if not word.endswith(ending) or len(word) < len(ending) + 2:
                continue
            stem = word[: -len(ending)]
            for form in _stems(stem, ending):
                said = self._known(form, ("VERB", *tags) if ending in ("ed", "ing") else tags)
                if said:
                    return join(said)
        return None


def _words(text: str) -> Iterator[Word]:
    previous: Word | None = None
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token.isspace() or token in "-–":
            if previous is not None:
                previous.spaced = previous.spaced or token.isspace()
            continue
        if previous is not None:
            yield previous
        previous = Word(
            token.rstrip("'’") if token[-1] in "'’" and token[-2:-1] != "s" else token, False
        )
    if previous is not None:
        yield previous


def _tags(word: str, before: list[str], after: str, vowel: bool | None) -> tuple[str, ...]:
    """Tags of the lexicon to try, by the neighbours: None (nothing follows), VERB, NOUN, ...."""
    if vowel is None and (not after or after in _MARKS):
        end: tuple[str, ...] = ("None",)
    else:
        end = ()
    previous = before[0] if before else ""
    if word == "that":
        follows_noun = after not in (
            "the",
            "a",
            "an",
            "i",
            "you",
            "he",
            "she",
            "it",
            "we",
            "they",
            "is",
            "was",
            "",
        )
        return (*end, "DT") if not before and follows_noun else end
    if previous in BEFORE_PAST:
        return (*end, "VBN", "VBD", "ADJ", "VERB" if previous in ("he", "she", "it") else "ADJ")
    if previous in BEFORE_VERBS or (not before and after in DETERMINERS):
        return (*end, "VERB")
    if previous in DETERMINERS or previous in ("in", "on", "for", "with", "at", "by", "of", "and"):
        return (
            (*end, "NOUN")
            if after in _MARKS or after in ("of", "is", "was", "and", "in", "for")
            else (*end, "ADJ", "NOUN")
        )
    return end


def _shouted(text: str) -> bool:
    """Three words or more, all in capitals."""
    return text.isupper() and len(text.split()) > 2


def _stressed(said: str) -> str:
    """A capital makes a word without stress a little stronger, as at the start of a sentence."""
    if "ˈ" in said or "ˌ" in said:
        return said
    at = next((i for i, c in enumerate(said) if c in _VOWELS), None)
    return said if at is None else f"{said[:at]}ˌ{said[at:]}"


def _stems(stem: str, ending: str) -> Iterator[str]:
    yield stem
    if ending == "s" and stem.endswith("ie"):
        yield f"{stem[:-2]}y"
    if ending == "s" and stem.endswith("e"):
        yield stem[:-1]
    if ending in ("ed", "ing"):
        yield f"{stem}e"
        if stem.endswith("i"):
            yield f"{stem[:-1]}y"
        if len(stem) > 2 and stem[-1] == stem[-2]:
            yield stem[:-1]


def _with_s(stem: str) -> str:
    if not stem:
        return "z"
    if stem[-1] in _VOICELESS:
        return f"{stem}s"
    return f"{stem}ᵻz" if stem[-1] in _HISSING else f"{stem}z"


def _with_ed(stem: str) -> str:
    if stem[-1] == "t" and len(stem) > 1 and stem[-2] in _FLAP_AFTER:
        return f"{stem[:-1]}ɾᵻd"
    if stem[-1] in "td":
        return f"{stem}ᵻd"
    return f"{stem}t" if stem[-1] in "pkfθʃsʧ" else f"{stem}d"


def _with_ing(stem: str) -> str:
    if stem[-1] == "t" and len(stem) > 1 and stem[-2] in _FLAP_AFTER:
        return f"{stem[:-1]}ɾɪŋ"
    return f"{stem}ɪŋ"
