"""Checks `extra_params` against the schema that the model declares.

A model's schema is a JSON Schema object whose properties are numbers, strings or truth values;
that much of the language is understood here.
"""

from collections.abc import Mapping
from typing import Any

from voxserve.api.schemas import shown
from voxserve.errors import InvalidRequestError

_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
}


def check_extra_params(values: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Raises InvalidRequestError naming the parameter, its value and what is allowed."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    for name, value in values.items():
        param = f"extra_params.{name[:64]}"
        if name not in properties:
            allowed = ", ".join(properties) or "none"
            raise InvalidRequestError(
                f"{param} is not a parameter of this model, there are: {allowed}",
                param=param,
                code="unsupported_parameter",
            )
        problem = _problem(value, properties[name])
        if problem:
            raise InvalidRequestError(f"{param} is {shown(value)}, {problem}", param=param)


def _problem(value: object, rule: Mapping[str, Any]) -> str | None:
    kind = rule.get("type")
    if kind is not None:
        is_truth_value = isinstance(value, bool)
        if not isinstance(value, _TYPES[kind]) or is_truth_value != (kind == "boolean"):
            return f"must be of type {kind}"
    if "enum" in rule and value not in rule["enum"]:
        return f"must be one of {', '.join(map(str, rule['enum']))}"
    if isinstance(value, int | float):
        if value < rule.get("minimum", value):
            return f"at least {rule['minimum']}"
        if value > rule.get("maximum", value):
            return f"at most {rule['maximum']}"
    if isinstance(value, str) and len(value) > rule.get("maxLength", len(value)):
        return f"at most {rule['maxLength']} characters"
    return None
