"""Modules without storage, for weights that are loaded or made afterwards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _SkipInit(TorchFunctionMode):
    """Leaves out what `torch.nn.init` would do."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)


@contextmanager
def blank() -> Iterator[None]:
    """Parameters made inside are on the meta device and never initialised.

    Initialising on the meta device would do no work either, but drags in the compiler: a second
    and a half, and a hundred megabytes. Buffers that must be real name their device.
    """
    with torch.device("meta"), _SkipInit():
        yield
