"""Timing that says something on a machine that others use too."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_PRIORITY = 5


@contextmanager
def first_served() -> Iterator[bool]:
    """This thread, and all that it starts meanwhile, run before whatever else the machine does.

    For loads that leave most of a core free. Gives whether the system allows it.
    """
    before, with_ = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except PermissionError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, before, with_)
