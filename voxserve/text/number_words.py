"""Numbers as English words."""

from collections.abc import Iterable

_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_ONES = f"zero one two three four five six seven eight nine {_TEENS}".split()
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ("", "thousand", "million", "billion", "trillion", "quadrillion", "quintillion")
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_LARGEST = 10 ** (3 * len(_SCALES))


def _small(number: int) -> str:
    """0 … 999."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens - 2] + (f" {_ONES[ones]}" if ones else "")
    hundreds, rest = divmod(number, 100)
    return f"{_ONES[hundreds]} hundred" + (f" {_small(rest)}" if rest else "")


def cardinal(number: int) -> str:
    """`1234` -> "one thousand two hundred thirty four"; digit by digit when beyond quintillions."""
    if number < 0:
        return f"minus {cardinal(-number)}"
    if number >= _LARGEST:
        return digits(str(number))
    parts: list[str] = []
    for scale in _SCALES:
        number, group = divmod(number, 1000)
        if group:
            parts.append(f"{_small(group)} {scale}".rstrip())
    return " ".join(reversed(parts)) or _ONES[0]


def ordinal(number: int) -> str:
    """`21` -> "twenty first"."""
    head, _, last = cardinal(number).rpartition(" ")
    if last in _ORDINALS:
        last = _ORDINALS[last]
    elif last.endswith("y"):
        last = f"{last[:-1]}ieth"
    else:
        last = f"{last}th"
    return f"{head} {last}".strip()


def year(number: int) -> str:
    """`1905` -> "nineteen oh five", `2005` -> "two thousand five", `2024` -> "twenty twenty four"
    (other than 1001 … 9999: a cardinal)."""
    high, low = divmod(number, 100)
    if not 1000 < number < 10_000 or (high % 10 == 0 and low < 10):
        return cardinal(number)
    if low == 0:
        return f"{cardinal(high)} hundred"
    return f"{cardinal(high)} " + (f"oh {_ONES[low]}" if low < 10 else cardinal(low))


def digits(text: Iterable[str]) -> str:
    """ "407" -> "four zero seven"; what is no digit is left out."""
    return " ".join(_ONES[int(c)] for c in text if c.isascii() and c.isdigit())


def decimal(text: str) -> str:
    """ "3.14" -> "three point one four"; thousands may have commas."""
    whole, _, part = text.replace(",", "").partition(".")
    words = cardinal(int(whole)) if whole else _ONES[0]
    return f"{words} point {digits(part)}" if part else words
