"""Text into units to speak, sentence by sentence or clause by clause, while it still arrives.

A unit is given out with the character that makes its end certain: the first of the next unit,
since what follows a full stop tells whether it was one. So the units never depend on how the text
was cut, and together they are the text.
"""

import unicodedata
from typing import Literal

from voxserve.text.abbreviations import BEFORE_A_NAME, BEFORE_A_NUMBER, MAY_END_A_SENTENCE
from voxserve.text.clean import speakable

Granularity = Literal["sentence", "clause"]

MAX_UNIT_CHARS = 400
MIN_CLAUSE_WEIGHT = 16
"""A clause shorter than this is not spoken alone: a model has too little to go by."""
MIN_SPACED_WEIGHT = 40
"""Scripts that only put spaces between phrases are cut at a space behind this much."""
WIDE_WEIGHT = 3
"""Of a character that stands for a syllable or a word; a letter weighs 1."""
MAX_ASIDE = 120
"""A bracket that stays open for longer is no bracket: a smiley, a list's "a)"."""
_MAX_RUN = 16
_EYES = (":", ";", "-", "=")

_NARROW_ENDS = ".!?…"
_WIDE_ENDS = "。！？｡︒．؟۔।॥။།༎።፧፨។៕‼⁇⁈⁉"
_ENDS = _NARROW_ENDS + _WIDE_ENDS
_NARROW_PAUSES = ",;:–"
_WIDE_PAUSES = "、，；：،؛፣፤፥၊—"
_OPENERS = "([{（［｛【〔"
_CLOSERS = ")]}）］｝】〕"
_QUOTES = "\"'”’»«」』》〉›"
_JOINER = "\u200d"
_WAIT = -1


class Splitter:
    """first: granularity of the first unit. rest: of all others. max_chars: of one unit, about."""

    def __init__(
        self,
        first: Granularity = "sentence",
        rest: Granularity = "sentence",
        max_chars: int = MAX_UNIT_CHARS,
    ) -> None:
        self._granularity = first
        self._rest = rest
        self._max_chars = max_chars
        self._text = ""
        self._begin_unit()

    @property
    def held(self) -> str:
        """Text that is in no unit yet."""
        return self._text

    def feed(self, piece: str) -> list[str]:
        """The units that are complete now."""
        self._text += piece
        units = []
        while end := self._boundary():
            units.append(self._text[:end])
            self._text = self._text[end:]
            self._granularity = self._rest
            self._begin_unit()
        return units

    def end(self) -> list[str]:
        """The last unit, if there is text left."""
        rest, self._text = self._text, ""
        self._begin_unit()
        return [rest] if rest else []

    def _begin_unit(self) -> None:
        self._at = 0
        self._weight = 0
        self._spoken = False
        self._depth = 0
        self._opened_at = 0

    def _boundary(self) -> int:
        """Where the first unit ends, 0 if that cannot be told yet."""
        text = self._text
        while self._at < len(text):
            if self._at >= self._max_chars:
                return forced_cut(text[: self._max_chars + 1])
            character = text[self._at]
            if character in _ENDS:
                found = self._judge_end()
            elif character in _NARROW_PAUSES or character in _WIDE_PAUSES:
                found = self._judge_pause()
            elif character.isspace():
                found = self._judge_space()
            else:
                self._pass(character)
                self._at += 1
                continue
            if found == _WAIT:
                return 0
            if found:
                return found
        return 0

    def _pass(self, character: str) -> None:
        """Count in a character that the unit goes on behind."""
        self._weight += WIDE_WEIGHT if _is_wide(character) else 1
        self._spoken = self._spoken or speakable(character)
        if character in _OPENERS and self._text[self._at - 1 : self._at] not in _EYES:
            self._opened_at = self._at
            self._depth += 1
        elif character in _CLOSERS:
            self._depth = max(0, self._depth - 1)

    def _pass_to(self, end: int) -> int:
        while self._at < end:
            self._pass(self._text[self._at])
            self._at += 1
        return 0

    def _aside(self, upto: int) -> bool:
        """Whether position `upto` stands inside brackets that were opened lately."""
        depth = self._depth
        for character in self._text[self._at : upto]:
            depth += (character in _OPENERS) - (character in _CLOSERS)
        return depth > 0 and self._at - self._opened_at <= MAX_ASIDE

    def _judge_end(self) -> int:
        text, at = self._text, self._at
        marks = self._run(at, _ENDS)
        closed = self._run(marks, _CLOSERS + _QUOTES)
        begin = self._skip_space(closed)
        if begin >= len(text):
            return _WAIT
        following, spaced = text[begin], begin > closed
        mark = text[marks - 1]
        if not self._spoken or self._aside(closed) or text[:at].strip().isdecimal():
            return self._pass_to(closed)
        ends = spaced or (closed == marks and (mark in _WIDE_ENDS or _is_wide(following)))
        if mark == "．" and following.isdecimal() and not spaced:
            ends = False
        if ends and mark in _NARROW_ENDS:
            quoted = closed > marks
            if mark in "!?":
                ends = not (quoted and following.islower())
            elif marks - at > 1 or mark == "…":
                ends = not following.islower()
            else:
                ends = _full_stop(_last_word(text[:at]), following)
        is_clause = self._granularity == "clause" and mark in _WIDE_ENDS
        if ends or (is_clause and self._weight >= MIN_CLAUSE_WEIGHT):
            return begin
        return self._pass_to(closed)

    def _judge_pause(self) -> int:
        text, at = self._text, self._at
        closed = self._run(at + 1, _CLOSERS + _QUOTES)
        begin = self._skip_space(closed)
        if begin >= len(text):
            return _WAIT
        spaced = begin > closed or text[at] in _WIDE_PAUSES
        grouped = begin == closed and text[begin].isdecimal()
        wanted = self._granularity == "clause" and self._weight >= MIN_CLAUSE_WEIGHT
        if wanted and spaced and not grouped and self._spoken and not self._aside(closed):
            return begin
        return self._pass_to(closed)

    def _judge_space(self) -> int:
        text, at = self._text, self._at
        begin = self._skip_space(at)
        if begin >= len(text):
            return _WAIT
        lines = text.count("\n", at, begin)
        clause = self._granularity == "clause" and self._weight >= MIN_CLAUSE_WEIGHT
        least = MIN_CLAUSE_WEIGHT if self._granularity == "clause" else MIN_SPACED_WEIGHT
        by_phrase = at > 0 and _is_spaced_by_phrase(text[at - 1]) and self._weight >= least
        if self._spoken and (lines > 1 or (lines and clause) or by_phrase):
            return begin
        return self._pass_to(begin)

    def _run(self, start: int, characters: str) -> int:
        """Behind the characters of that kind at `start`."""
        end = start
        while end < min(len(self._text), start + _MAX_RUN) and self._text[end] in characters:
            end += 1
        return end

    def _skip_space(self, start: int) -> int:
        end = start
        while end < min(len(self._text), start + _MAX_RUN) and self._text[end].isspace():
            end += 1
        return end


def weight(text: str) -> int:
    """Of a text, in letters: roughly proportional to how long it takes to say."""
    return sum(WIDE_WEIGHT if _is_wide(character) else 1 for character in text)


def forced_cut(text: str) -> int:
    """Where to cut a text that is one character too long for a unit: behind its last sentence or
    clause mark, else its last space, else in front of its last character; never inside one."""
    longest = len(text) - 1
    for kind in (_ENDS, _NARROW_PAUSES + _WIDE_PAUSES, ""):
        for end in range(longest, longest // 4, -1):
            behind, following = text[end - 1], text[end]
            is_mark = behind in kind and (following.isspace() or _is_wide(behind))
            if is_mark or (not kind and following.isspace()):
                return end
    end = longest
    while end > longest // 2 and (_joins(text[end]) or text[end - 1] == _JOINER):
        end -= 1
    return max(1, end)


def _full_stop(word: str, following: str) -> bool:
    """Whether the full stop behind `word` ends a sentence, if `following` begins what is next."""
    lower = word.casefold()
    if following.islower() or lower in BEFORE_A_NAME:
        return False
    if lower in BEFORE_A_NUMBER and following.isdecimal():
        return False
    if lower in MAY_END_A_SENTENCE:
        return True
    parts = word.split(".")
    if len(parts) > 1:
        return not all(0 < len(part) <= 2 and part.isalpha() for part in parts)
    return not (len(word) == 1 and word.isalpha() and word != "I")


def _last_word(text: str) -> str:
    start = len(text)
    while start and not text[start - 1].isspace():
        start -= 1
    return text[start:].lstrip(_OPENERS + _QUOTES + "“‘„")


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def _is_spaced_by_phrase(character: str) -> bool:
    """Thai, Lao, Myanmar and Khmer."""
    return (
        "\u0e00" <= character <= "\u0eff"
        or "\u1000" <= character <= "\u109f"
        or ("\u1780" <= character <= "\u17ff")
    )


def _joins(character: str) -> bool:
    return unicodedata.category(character).startswith("M") or character == _JOINER
