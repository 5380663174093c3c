"""Kernels that begin while the one before them still runs, and fetch what it does not write.

A launch of this kind ("programmatic dependent launch") may begin once every program of the kernel
before it has called `wait`, so all earlier kernels are done by then. Before its own `wait` a kernel
may read what those wrote, behind it everything. A captured graph keeps the arrangement.
"""

from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

LINE = tl.constexpr(128)
"""Bytes that are fetched at a time."""
ON = False


def launch() -> dict[str, Any]:
    """What a launch of a kernel that waits needs beside its arguments."""
    return {"launch_pdl": True} if ON else {}


@triton.jit
def wait(EARLY: tl.constexpr):
    """Go on when all that earlier kernels wrote is there, and let the next kernel begin."""
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def fetch(at):
    """Bring the lines that the pointers `at` are in closer."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [at],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def fetch_rows(w, rows, STRIDE: tl.constexpr, SIZE: tl.constexpr, EARLY: tl.constexpr):
    """Bring the first SIZE values of `rows` [M] of w [*, STRIDE] closer."""
    if EARLY:
        step: tl.constexpr = LINE // (w.dtype.element_ty.primitive_bitwidth // 8)
        parts = tl.arange(0, triton.next_power_of_2(SIZE // step)) * step
        parts = tl.minimum(parts, SIZE - 1)
        fetch(w + rows.to(tl.int64)[:, None] * STRIDE + parts[None, :])
