from typing import Any

import pytest

from voxserve.api.schemas import SessionFields, SpeechFields, parse
from voxserve.errors import InvalidRequestError


def test_unknown_fields_are_named_or_refused() -> None:
    data = {"input": "Hi.", "colour": "red", "extra": {}}
    fields, ignored = parse(SpeechFields, dict(data), strict_fields=False)
    assert fields.input == "Hi." and ignored == ["colour", "extra"]
    with pytest.raises(InvalidRequestError) as refused:
        parse(SpeechFields, dict(data), strict_fields=True)
    assert (refused.value.code, refused.value.param) == ("unknown_field", "colour")


@pytest.mark.parametrize(
    ("data", "param"),
    [
        ({"speed": "1"}, "speed"),
        ({"speed": True}, "speed"),
        ({"speed": float("inf")}, "speed"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"top_p": 0}, "top_p"),
        ({"voice": 5}, "voice"),
        ({"voice": {"name": "x"}}, "voice"),
        ({"voice": "x" * 257}, "voice"),
        ({"voice": {"id": "x" * 257}}, "voice"),
        ({"model": "x" * 257}, "model"),
        ({"speed": [0] * 100_000}, "speed"),
        ({"references": [{}, {}]}, "references"),
        ({"metadata": {"deep": {}}}, "metadata.deep"),
        ({"metadata": {str(n): n for n in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"metadata": {"a" * 65: 1}}, f"metadata.{'a' * 65}"),
        ({"metadata": {"a": float("inf")}}, "metadata.a"),
        ({"instructions": "x" * 1001}, "instructions"),
        ({"instructions": "a\0b"}, "instructions"),
        ({"ref_text": "a\0b"}, "ref_text"),
        ({"references": [{"text": "a\0b"}]}, "references.0.text"),
        ({"stream": "true"}, "stream"),
    ],
)
def test_message_names_field_and_value(data: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse(SpeechFields, data, strict_fields=False)
    assert refused.value.param == param
    assert param in refused.value.message


def test_long_values_are_cut_in_messages() -> None:
    values: list[object] = ["x" * 10_000, ["x" * 10_000] * 1000, {"x" * 10_000: {}}]
    for value in values:
        with pytest.raises(InvalidRequestError) as refused:
            parse(SpeechFields, {"speed": value}, strict_fields=False)
        assert len(refused.value.message) < 300


def test_form_values_are_read_from_text() -> None:
    data = {"input": "Hi.", "speed": "1.5", "seed": "7", "stream": "false"}
    fields, _ = parse(SpeechFields, dict(data), strict_fields=False, from_text=True)
    assert (fields.speed, fields.seed, fields.stream) == (1.5, 7, False)


def test_speaker_is_another_name_of_voice() -> None:
    fields, ignored = parse(SpeechFields, {"speaker": "ryan"}, strict_fields=False)
    assert fields.voice == "ryan" and not ignored


@pytest.mark.parametrize("field", ["input", "stream", "stream_format"])
def test_session_takes_no_request_fields(field: str) -> None:
    _, ignored = parse(SessionFields, {field: "x"}, strict_fields=False)
    assert ignored == [field]
