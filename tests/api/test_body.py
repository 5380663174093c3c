"""Bodies that are made to keep the server busy."""

import time

import pytest

from tests.models.tiny_rows import host
from voxserve.api.body import MAX_DEPTH, MAX_MARKS, parse_object
from voxserve.api.schemas import SpeechFields
from voxserve.api.speech_request import resolve
from voxserve.config import load_config
from voxserve.errors import InvalidRequestError

MIB = 2**20
SOON_S = 1.0
"""Of processor time; what these tests forbid takes several seconds."""


@pytest.mark.parametrize("value", ["0", "[]", "{}", '""'])
def test_millions_of_tiny_values_are_not_parsed(value: str) -> None:
    body = b'{"input":[' + b",".join([value.encode()] * (15 * MIB // (len(value) + 1))) + b"]}"
    begin = time.process_time()
    with pytest.raises(InvalidRequestError, match=f"more than {MAX_MARKS} commas") as refused:
        parse_object(body)
    assert refused.value.code == "invalid_json"
    assert time.process_time() - begin < SOON_S


def test_large_texts_and_many_values_are_taken() -> None:
    large = {"ref_audio": "A" * 14 * MIB, "input": "a, b, [c], {d}. " * 1000}
    assert parse_object(str(large).replace("'", '"')) == large
    many = ",".join(map(str, range(MAX_MARKS - 10)))
    assert len(parse_object(f'{{"many":[{many}]}}')["many"]) == MAX_MARKS - 10
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    with pytest.raises(InvalidRequestError, match="nested"):
        parse_object(f'{{"deep":{deep}}}')


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (" " * 15 * MIB, "input_empty"),
        ("\u200b" * 5 * MIB, "input_too_long"),
        ("e\u0301" * 5 * MIB, "input_too_long"),
    ],
)
def test_megabytes_of_text_are_measured_before_they_are_read(text: str, code: str) -> None:
    plan = resolve(SpeechFields(), host(), load_config(), format_="pcm", silence=False)
    begin = time.process_time()
    with pytest.raises(InvalidRequestError) as refused:
        plan.with_text(text, 16_384)
    assert (refused.value.code, refused.value.param) == (code, "input")
    assert time.process_time() - begin < SOON_S


def test_length_counts_what_is_left_after_composing() -> None:
    plan = resolve(SpeechFields(), host(), load_config(), format_="pcm", silence=False)
    decomposed = "  " + "u\u0308\u0304" * 1000 + "\n" * 10_000
    assert plan.with_text(decomposed, 1000).request.text == "\u01d6" * 1000
    with pytest.raises(InvalidRequestError, match="input has 1001 characters, at most 1000"):
        plan.with_text(decomposed.strip() + "a", 1000)
