"""What a launch's tiles are chosen for: the SMs it is captured on, or nothing that may change.

A kernel's launcher asks `sms()` and `fixed()`; whoever captures a graph says them around the
capture. Both belong to the current context: two threads may capture for two partitions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_SMS: ContextVar[int | None] = ContextVar("sms", default=None)
_FIXED: ContextVar[bool] = ContextVar("fixed", default=False)
WITHOUT_GPU_SMS = 132
"""What `sms` says where no device can be asked: tests on a CPU."""


@contextmanager
def on_sms(count: int) -> Iterator[None]:
    """Choose tiles for `count` SMs inside."""
    token = _SMS.set(count)
    try:
        yield
    finally:
        _SMS.reset(token)


@contextmanager
def fixed_tiles(on: bool = True) -> Iterator[None]:
    """Choose the same tiles inside whatever the rows and the SMs, so that a row's result has the
    same bits alone, in any batch and on any partition."""
    token = _FIXED.set(on)
    try:
        yield
    finally:
        _FIXED.reset(token)


def sms() -> int:
    """SMs to choose tiles for: those of `on_sms`, or all that the current device has."""
    count = _SMS.get()
    if count is not None:
        return count
    if not torch.cuda.is_available():
        return WITHOUT_GPU_SMS
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def fixed() -> bool:
    """Whether tiles must depend on nothing but the model's sizes."""
    return _FIXED.get()
