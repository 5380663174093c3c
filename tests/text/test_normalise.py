"""The rules as models that read text get them; mini's own tests hold the rest of the table."""

import time

import pytest

from voxserve.text.normalise import normalise

SAID = {
    "It costs $3.50, or €2.": "It costs three dollars and fifty cents, or two euros.",
    "On 2024-02-29 at 7:05 p.m. sharp": "On February twenty ninth, twenty twenty four at seven "
    "oh five P M sharp",
    "5km at 900 km/h, -5°C": "five kilometers at nine hundred kilometers per hour, "
    "minus five degrees Celsius",
    "“Wait” (2 of 3),\nDr. Smith!": "“Wait” (two of three),\nDoctor Smith!",
    "See https://www.example.com/docs.": "See example dot com slash docs.",
    "R&D, e.g. 50%": "R and D, for example fifty percent",
    "JSON-RPC": "JSON-RPC",
    "Nothing to do here, …": "Nothing to do here, …",
    "Größe, 你好": "Größe, 你好",
    "": "",
}


@pytest.mark.parametrize("text", SAID)
def test_said(text: str) -> None:
    assert normalise(text) == SAID[text]


@pytest.mark.parametrize("text", SAID)
def test_words_stay_as_they_are(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@pytest.mark.parametrize(
    "unit",
    ["1", "1,", "111,", "1/", "1:", "1.1", "$", "a", "a.", "a-", "a@", "-", ".", " ", "$1,111"],
)
def test_work_grows_with_the_text_alone(unit: str) -> None:
    """Rules that try again from every character take a hundred times as long as this."""
    begin = time.process_time()
    normalise((unit * 16_000)[:16_000])
    assert time.process_time() - begin < 3


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("1" * 19, "one " * 18 + "one"),
        ("1,111,111,111,111,111,111", "one " * 18 + "one"),
        ("3.14", "three point one four"),
    ],
)
def test_endless_numbers_are_read_digit_by_digit(number: str, said: str) -> None:
    assert normalise(f"It is {number}.") == f"It is {said}."
