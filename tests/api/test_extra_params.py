from typing import Any

import pytest

from voxserve.api.extra_params import check_extra_params
from voxserve.errors import InvalidRequestError

SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "ratio": {"type": "number", "minimum": 0.5},
        "on": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["a", "b"], "maxLength": 4},
    },
}


@pytest.mark.parametrize(
    "values", [{}, {"count": 1}, {"ratio": 1}, {"ratio": 0.5, "on": False, "mode": "b"}]
)
def test_good_values(values: dict[str, Any]) -> None:
    check_extra_params(values, SCHEMA)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"count": 0}, "invalid_parameter"),
        ({"count": 10}, "invalid_parameter"),
        ({"count": True}, "invalid_parameter"),
        ({"count": 1.5}, "invalid_parameter"),
        ({"ratio": 0.4}, "invalid_parameter"),
        ({"on": 1}, "invalid_parameter"),
        ({"mode": "c"}, "invalid_parameter"),
        ({"other": 1}, "unsupported_parameter"),
    ],
)
def test_bad_values(values: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_extra_params(values, SCHEMA)
    (name,) = values
    assert (refused.value.code, refused.value.param) == (code, f"extra_params.{name}")


def test_model_without_parameters_takes_none() -> None:
    check_extra_params({}, {})
    with pytest.raises(InvalidRequestError):
        check_extra_params({"count": 1}, {})
