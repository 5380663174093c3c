"""English as people write it to words as they say it: numbers, money, dates, units, addresses.

Each rule is a pattern and what its match becomes; they run in order, special before general.
Models whose front end needs words use the rules always, others when a request asks for it.
"""

import re
from collections.abc import Callable

from voxserve.text.number_words import cardinal, decimal, digits, ordinal, year
from voxserve.text.spoken_forms import (
    ABBREVIATIONS,
    CURRENCIES,
    FIXED,
    MONTHS,
    ROMAN_AFTER,
    SIGNS,
    SMALL_MONEY,
    TITLES,
    UNITS,
)

Match = re.Match[str]
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_SCALE = r"(?: ?(hundred|thousand|million|billion|trillion|[kKmMbB](?:n|ln)?)\b)?"
_SCALES = {"k": "thousand", "m": "million", "b": "billion"}


def _alternatives(words: dict[str, str] | dict[str, tuple[str, str]]) -> str:
    return "|".join(re.escape(w) for w in sorted(words, key=len, reverse=True))


def number(text: str) -> str:
    """Any plain number, sign included, as words."""
    sign = "minus " if text[0] in "-−" else ""
    return sign + decimal(text.lstrip("-−+"))


def _plural(amount: str, forms: tuple[str, str]) -> str:
    return forms[0] if amount.replace(",", "") in ("1", "-1") else forms[1]


def _address(match: Match) -> str:
    """A URL or a mail address, sign by sign."""
    text = re.sub(r"^(https?|ftp)://(www\.)?", "", match[0], flags=re.I).rstrip("/")
    text = re.sub(r"\d+", lambda m: f" {digits(m[0]) if len(m[0]) > 2 else number(m[0])} ", text)
    for sign, word in (
        (".", "dot"),
        ("/", "slash"),
        ("@", "at"),
        ("-", "dash"),
        ("_", "underscore"),
    ):
        text = text.replace(sign, f" {word} ")
    return re.sub(r"[?&=#:%~+]", " ", text)


def _time(match: Match) -> str:
    hour, minute, half = int(match[1]), int(match[2]), match[3]
    if hour > 24 or minute > 59:
        return match[0]
    said = cardinal(hour)
    if minute:
        said += f" oh {cardinal(minute)}" if minute < 10 else f" {cardinal(minute)}"
    elif not half:
        said += " o'clock" if 0 < hour <= 12 else " hundred hours"
    return f"{said} {half.upper()} M" if half else said


def _hour(match: Match) -> str:
    return f"{cardinal(int(match[1]))} {match[2].upper()} M"


def _calendar(day: int, month: int, in_year: str | None) -> str | None:
    if not (1 <= day <= 31 and 1 <= month <= 12):
        return None
    names = list(dict.fromkeys(MONTHS.values()))
    return f"{names[month - 1]} {ordinal(day)}" + (f", {_year(in_year)}" if in_year else "")


def _year(text: str) -> str:
    value = int(text)
    return year(value + (2000 if value < 50 else 1900) if len(text) == 2 else value)


def _iso_date(match: Match) -> str:
    return _calendar(int(match[3]), int(match[2]), match[1]) or match[0]


def _slash_date(match: Match) -> str:
    first, second = int(match[1]), int(match[2])
    month, day = (first, second) if first <= 12 else (second, first)
    return _calendar(day, month, match[3]) or match[0]


def _month_day(match: Match) -> str:
    said = f"{MONTHS[match[1]]} {ordinal(int(match[2]))}"
    return said + (f", {year(int(match[3]))}" if match[3] else "")


def _day_month(match: Match) -> str:
    said = f"the {ordinal(int(match[2]))} of {MONTHS[match[3]]}"
    return said + (f", {year(int(match[4]))}" if match[4] else "")


def _money(match: Match) -> str:
    sign, amount, scale = match[1], match[2], match[3]
    forms = CURRENCIES[sign]
    if scale:
        scale = _SCALES.get(scale[0].lower(), scale) if len(scale) <= 3 else scale
        return f"{decimal(amount)} {scale} {forms[1]}"
    whole, _, part = amount.partition(".")
    if len(part) != 2 or sign not in SMALL_MONEY:
        return f"{decimal(amount)} {_plural(amount, forms)}"
    units, cents = int(whole.replace(",", "")), int(part)
    said = [f"{cardinal(units)} {_plural(str(units), forms)}"] if units or not cents else []
    said += [f"{cardinal(cents)} {_plural(str(cents), SMALL_MONEY[sign])}"] if cents else []
    return " and ".join(said)


def _unit(match: Match) -> str:
    return f"{number(match[1])} {_plural(match[1], UNITS[match[2]])}"


def _fraction(match: Match) -> str:
    whole, top, bottom = match[1], int(match[2]), int(match[3])
    if not 0 < top < bottom <= 100:
        return f"{whole or ''}{cardinal(top)} over {cardinal(bottom)}"
    named = {2: "half", 4: "quarter"}.get(bottom, ordinal(bottom))
    plural = {"half": "halves"}.get(named, f"{named}s")
    said = f"{cardinal(top)} {named if top == 1 else plural}"
    return f"{number(whole.strip())} and {'a ' + named if top == 1 else said}" if whole else said


def _roman(match: Match) -> str:
    values = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
    each = [values[c] for c in match[2]]
    total = sum(-a if a < b else a for a, b in zip(each, [*each[1:], 0], strict=True))
    return f"{match[1]} {cardinal(total)}"


def _initials(match: Match) -> str:
    """ "U.S." as letters; the last point stays where it ends the sentence."""
    after = match.string[match.end() :].lstrip()
    return " ".join(match[0].upper().split(".")).strip() + ("." if not after else "")


def _plain(match: Match) -> str:
    text = match[0]
    if re.fullmatch(r"1[1-9]\d\d|20\d\d", text):
        return year(int(text))
    if len(text) > 1 and text[0] == "0" and "." not in text:
        return digits(text)
    return number(text)


def _decade(match: Match) -> str:
    said = year(int(match[1])) if len(match[1]) == 4 else cardinal(int(match[1]))
    return f"{said[:-1]}ies" if said.endswith("y") else f"{said}s"


_PHONE = (
    r"(?<![\w.])(?:\+?\d{1,3}[ .-])?\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w.-]\d)|\b\d{3}-\d{4}\b"
)
_ADDRESS = (
    r"\b(?:(?:https?|ftp)://|www\.)[^\s,;!\"')>]*[\w/]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"
    r"|(?<![\w.-])(?:[\w-]{1,63}\.){1,8}(?:com|org|net|edu|gov|io|dev|ai|co|uk|de|info|app)(?:/[\w./-]*\w)?\b"
)
# Nobody reads numbers of this length as one. It also bounds the work of all rules behind.
_ENDLESS = r"(?<![\d.,])\d{1,3}(?:,\d{3}){6,}(?!\d)|(?<![\d.])\d{19,}"
RULES: tuple[tuple[re.Pattern[str], Callable[[Match], str]], ...] = (
    (re.compile(_ADDRESS), _address),
    (re.compile(_ENDLESS), lambda m: f" {digits(m[0])} "),
    (re.compile(r"(?<![\d/])(24/7|9/11)(?![\d/])"), lambda m: FIXED[m[1]]),
    (re.compile(r"\b(\d{4}|[1-9]0)['’]?s\b"), _decade),
    (re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b"), _iso_date),
    (re.compile(r"\b(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})\b"), _slash_date),
    (re.compile(r"\b(\d{1,2}):(\d{2})(?:\s?([AaPp])\.?[Mm]\b\.?)?(?![\d:])"), _time),
    (re.compile(r"\b(\d{1,2})\s?([AaPp])\.?[Mm]\b\.?"), _hour),
    (
        re.compile(rf"(?<![\w.])({_alternatives(ABBREVIATIONS)})(?!\w)"),
        lambda m: ABBREVIATIONS[m[1]],
    ),
    (re.compile(_PHONE), lambda m: ", ".join(digits(g) for g in re.findall(r"\d+", m[0]))),
    (re.compile(r"(?<=[\d%])\s?[-–—]\s?(?=[\d$£€])"), lambda m: " to "),
    (re.compile(rf"({_alternatives(CURRENCIES)})\s?({_NUMBER}){_SCALE}"), _money),
    (re.compile(rf"\b({_MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (\d{{4}})\b)?"), _month_day),
    (
        re.compile(
            rf"\b(the )?(\d{{1,2}})(?:st|nd|rd|th)? (?:of )?({_MONTH})\b\.?(?:,? (\d{{4}})\b)?"
        ),
        _day_month,
    ),
    (re.compile(rf"(?<![\w.])([-−]?{_NUMBER})\s?({_alternatives(UNITS)})(?![\w])"), _unit),
    (re.compile(rf"(?<![\d.])({_NUMBER})[kK]\b"), lambda m: f"{decimal(m[1])} thousand"),
    (re.compile(r"\b(?:[A-Za-z]\.){2,}(?![A-Za-z])"), _initials),
    (re.compile(r"(?<=\b[Ii]n )1\d{3}\b"), lambda m: year(int(m[0]))),
    (re.compile(r"(?<![\w./])(\d+ )?(\d{1,2})/(\d{1,3})(?![\w./])"), _fraction),
    (
        re.compile(r"\b(\d+(?:,\d{3})*)(?:st|nd|rd|th)\b"),
        lambda m: ordinal(int(m[1].replace(",", ""))),
    ),
    (re.compile(rf"\b({'|'.join(ROMAN_AFTER)}) ([IVXLC]+)\b"), _roman),
    (re.compile(r"\b(?!Mount|Mt)([A-Z]\w+|\d+\w\w) St\b\.?"), lambda m: f"{m[1]} Street"),
    (re.compile(r"\b(Mr|Mrs|Ms)\b\.?"), lambda m: TITLES[m[1]]),
    (re.compile(rf"\b({_alternatives(TITLES)})\.?(?= [A-Z])"), lambda m: TITLES[m[1]]),
    (re.compile(r"\bNo\. ?(?=\d)|(?<![\w&])#(?=\d)"), lambda m: "number "),
    (re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])"), lambda m: " "),
    (re.compile(rf"(?<![\w.])[-−]{_NUMBER}|{_NUMBER}"), _plain),
    (re.compile(rf"[{re.escape(''.join(SIGNS))}]"), lambda m: f" {SIGNS[m[0]]} "),
)


def in_words(text: str) -> str:
    """The text with every rule applied; marks, quotes and lines stay, spaces may pile up."""
    for pattern, said in RULES:
        text = pattern.sub(said, text)
    return text


def normalise(text: str) -> str:
    """`in_words`, with single spaces and none before a mark: what a model that reads text gets."""
    said = re.sub(r" {2,}", " ", in_words(text))
    return re.sub(r" +([.,;:!?])", r"\1", said).strip()
