"""What a person sees of a soak: a row a quarter, what the server held, and the verdict."""

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from voxserve.bench.display import WIDE_COLUMNS, cells, counts, title
from voxserve.bench.soak import Soak


def show(soak: Soak) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE_COLUMNS)
    console.print(table(soak, narrow=console.width < WIDE_COLUMNS))
    for line in lines(soak):
        console.print(line, highlight=False, soft_wrap=True)


def table(soak: Soak, narrow: bool = False) -> Table:
    """A row a quarter, and one for all."""
    shown = Table(
        title=title(soak.result),
        title_justify="left",
        box=SIMPLE,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )
    step = soak.quarters[0].window_s / 60
    spans = [f"{step * i:.3g}-{step * (i + 1):.3g}" for i in range(len(soak.quarters))]
    rows = [
        {"minutes": span} | cells(point, narrow)
        for span, point in zip([*spans, "all"], [*soak.quarters, *soak.result.points], strict=True)
    ]
    # All rows are of one rate, which the line below the table has.
    names = [name for name in rows[0] if name != "req/s"]
    for name in names:
        shown.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(*(row[name] for name in names))
    return shown


def lines(soak: Soak) -> list[str]:
    """What the server held, and what is wrong."""
    (point,) = soak.result.points
    told = [
        f"{point.rate:g} requests/s for {point.window_s / 60:g} minutes, all in one; left in each "
        f"quarter: {', '.join(str(quarter.left) for quarter in soak.quarters)}"
    ]
    told += counts(soak.result)
    told += _held(soak)
    told += [f"PROBLEM: {problem}" for problem in soak.problems]
    return [*told, "The server does not hold up." if soak.problems else "The server holds up."]


def _held(soak: Soak) -> list[str]:
    before, after, memory = soak.before, soak.after, soak.memory
    told = [
        f"{name}, idle: {before.in_use.get(name, 0.0):g} before, {used:g} after"
        for name, used in after.in_use.items()
    ]
    if not told:
        told.append("the server does not say how many slots and pages it uses")
    pairs = [
        (before.host_mib, memory.early_host_mib, memory.end_host_mib, after.host_mib),
        (before.gpu_mib, memory.early_gpu_mib, memory.end_gpu_mib, after.gpu_mib),
    ]
    for looks in pairs:
        for name in looks[-1]:
            mib = [f"{look[name]:.0f}" if name in look else "-" for look in looks]
            told.append(
                f"memory of {name}, MiB: {mib[0]} idle before; under load {mib[1]} at an eighth, "
                f"{mib[2]} at the end; {mib[3]} idle after"
            )
    if not after.host_mib:
        told.append("no process of the server can be seen from here: its memory is not known")
    if not after.gpu_mib:
        told.append("no GPU memory was read")
    told += [
        f"open files of {name}, idle: {before.open_files.get(name, 0)} before, {files} after"
        for name, files in after.open_files.items()
    ]
    return told
