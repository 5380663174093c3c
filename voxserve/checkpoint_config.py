"""Reading a checkpoint's configuration: whatever is missing or odd in it is a CheckpointError."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from voxserve.errors import CheckpointError

T = TypeVar("T")


def get(config: Mapping[str, Any], name: str) -> Any:
    """A value that must be there. Raises CheckpointError when it is not, or is null."""
    if not isinstance(config, Mapping) or config.get(name) is None:
        raise CheckpointError(f"the model's configuration has no {name}")
    return config[name]


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Around code that takes a configuration apart, or reckons with one: what fails in it raises
    CheckpointError.

    name: of the checkpoint, or of its model.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        kind = type(error).__name__
        raise CheckpointError(f"configuration of {name}: {kind}: {error}") from error


def checked(value: T, name: str) -> T:
    """A dataclass whose fields are what their annotations say, whole numbers from 0, others finite,
    and no tuple empty. Raises CheckpointError naming the first that is not.

    name: of the checkpoint.
    """
    _check(value, name, "")
    return value


def _check(value: Any, name: str, where: str) -> None:
    hints = get_type_hints(type(value))
    for field in fields(value):
        inner, place = getattr(value, field.name), f"{where}{field.name}"
        if not _fits(inner, hints[field.name]):
            kind = str(getattr(hints[field.name], "__name__", hints[field.name]))
            raise CheckpointError(
                f"configuration of {name}: {place} is {repr(inner)[:60]}, must be {kind}"
            )
        if is_dataclass(inner):
            _check(inner, name, f"{place}.")


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (int, float):
        number = isinstance(value, int if kind is int else int | float)
        return number and not isinstance(value, bool) and _in_range(value, kind)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return 0 < len(kinds) == len(value) and all(map(_fits, value, kinds))
    if origin is not None:
        keys, values = inner
        return isinstance(value, Mapping) and all(
            _fits(key, keys) and _fits(each, values) for key, each in value.items()
        )
    return isinstance(value, kind)


def _in_range(value: float, kind: Any) -> bool:
    return value >= 0 if kind is int else math.isfinite(value)
