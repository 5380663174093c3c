"""Which tiles a linear map is cut into: for its sizes, the batch's rows and the partition's SMs.

At up to 256 rows a map's time is that of reading its weights, so what counts is that every SM has
an equal share of them in flight. A grid of 128 programs fits 132 SMs and takes two rounds on 100:
so plans are made for the SMs in use, and a map's K may be split to fill them.
"""

from dataclasses import dataclass, replace
from typing import Literal

from voxserve.kernels import tiles
from voxserve.kernels.linear_table import MEASURED
from voxserve.kernels.stream import FIXED_ROWS, padded

Kind = Literal["linear", "gate_up", "residual"]
"""A map of `voxserve.kernels.linear`. In `gate_up` two maps share a program, which then holds twice
the columns; of `residual` parts of K may be programs of their own."""
NEAR_SMS = 8
"""A measured plan serves partitions that differ by so many SMs."""

SHARED_BYTES = 227 * 1024
"""Shared memory of an SM; tiles in flight fill it, one program's or two programs'."""
MEASURED_ROWS = (16, 32, 64, 128, 192, 256)
"""Rows that plans are measured at, where they are."""
MOST_STAGES = 8
STEP = 64
"""Of K, in every plan that was not measured; what measured best for most."""


@dataclass(frozen=True, slots=True)
class Plan:
    """rows, columns, depth: a tile of the output and the step along K, powers of two. split: parts
    of K, each a program. stages: tiles in flight. warps: of a program."""

    rows: int
    columns: int
    depth: int
    split: int = 1
    stages: int = 3
    warps: int = 4


def plan(kind: Kind, columns: int, depth: int, rows: int) -> Plan:
    """The tiles for a map of K = `depth` to N = `columns` on the current target."""
    if tiles.fixed():
        return reckoned(kind, columns, depth, FIXED_ROWS, tiles.WITHOUT_GPU_SMS)
    high, sms = padded(rows), tiles.sms()
    found = measured(kind, columns, depth, high, sms)
    return found or reckoned(kind, columns, depth, high, sms)


def measured(kind: Kind, columns: int, depth: int, rows: int, sms: int) -> Plan | None:
    """What was measured at these rows, else at the next more, else at the next fewer, but for no
    more than twice nor less than half as many, and for none up to 64, whose tiles are as high as
    they are. None where nothing was, or only what fills these SMs worse.

    A grid that just fills 100 SMs takes two rounds on 92. So tiles serve other SMs only in as many
    rounds as where they were measured, and other rows only in as many as `reckoned` would take.
    """
    known = [count for count in MEASURED_ROWS if min(count, rows) > FIXED_ROWS]
    more = [count for count in known if rows < count <= 2 * rows]
    fewer = [count for count in reversed(known) if rows / 2 <= count < rows]
    near = sorted(range(sms - NEAR_SMS, sms + NEAR_SMS + 1), key=lambda count: abs(count - sms))
    for high in (rows, *more, *fewer):
        for count in near:
            found = MEASURED.get((kind, columns, depth, high, count))
            if found is None:
                continue
            # The largest power of two that divides the rows is the highest that a tile may be.
            cut = replace(Plan(*found), rows=min(found[0], rows & -rows))
            rule = cut if high == rows else reckoned(kind, columns, depth, rows, sms)
            most = _rounds(rule, columns, rows, count if high == rows else sms)
            if _rounds(cut, columns, rows, sms) <= most:
                return cut
    return None


def _rounds(cut: Plan, columns: int, rows: int, sms: int) -> int:
    """Programs that the SM with the most of them runs, one after the other."""
    return -(-(rows // cut.rows * (columns // cut.columns) * cut.split) // sms)


def reckoned(kind: Kind, columns: int, depth: int, rows: int, sms: int) -> Plan:
    """The plan where nothing was measured: a grid that fills the SMs once, as nearly as it can."""
    pair = kind == "gate_up"
    tall = min(rows, 64)
    best: tuple[float, Plan] | None = None
    for wide in (128, 64, 32):
        if columns % wide or (pair and wide > 64):
            continue
        for parts in (1, 2, 3, 4, 6, 8) if kind == "residual" else (1,):
            if depth % (parts * STEP) or depth // parts < 256:
                continue
            programs = rows // tall * (columns // wide) * parts
            rounds = -(-programs // sms)
            cost = rounds**1.25 * sms / programs * (1 + 0.03 * (parts - 1)) * (1 + 2.0 / wide)
            if best is None or cost < best[0]:
                tile_bytes = (tall + wide * (2 if pair else 1)) * STEP * 2
                stages = min(MOST_STAGES, SHARED_BYTES // tile_bytes // min(rounds, 2))
                warps = 8 if tall * wide >= 64 * 128 else 4
                best = cost, Plan(tall, wide, STEP, parts, stages, warps)
    if best is None:
        return _small(columns, depth, tall)
    return best[1]


def _small(columns: int, depth: int, tall: int) -> Plan:
    """For sizes of tests: the largest powers of two that divide."""
    return Plan(tall, min(256, columns & -columns), min(128, depth & -depth), 1, 2)
