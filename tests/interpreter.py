"""Triton's interpreter, for machines without a GPU: import this before any module of kernels.

As it comes it spends most of its time on two habits that find nothing here, and they are broken:
it asks of every sum of addresses whether it overflows, and before every call of a function within a
kernel it replaces all of `triton.language` again, which the start of the kernel has done.
"""

import importlib.util
import os
from typing import Any

import torch

GPU = torch.cuda.is_available()
if not GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before its import


class _Replaced:
    """What a kernel's start has replaced, until its end."""

    def __init__(self, modules: set[str], scope: Any) -> None:
        self.modules, self.scope = modules, scope

    def restore(self) -> None:
        self.modules.clear()
        self.scope.restore()


def _hasten() -> None:
    from triton.runtime import interpreter

    object.__setattr__(interpreter.interpreter_builder.options, "sanitize_overflow", False)
    replace = interpreter._patch_lang
    modules: set[str] = set()

    def once(function: Any) -> _Replaced | None:
        """Once a module that functions come from: each has its own names for the language."""
        if function.__module__ in modules:
            return None  # called within a kernel, where nobody takes the answer
        modules.add(function.__module__)
        return _Replaced(modules, replace(function))

    interpreter._patch_lang = once


if os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None:
    _hasten()
