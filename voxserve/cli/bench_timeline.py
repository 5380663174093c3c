"""`voxserve bench timeline`: a picture of what the lanes did, and its figures."""

from pathlib import Path
from typing import Annotated

import typer

from voxserve.cli import options

TRACE_S = 0.120


def timeline(
    trace: Annotated[Path, typer.Argument(help="File of `voxserve serve --trace`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Picture (.png, .svg, .pdf).")
    ] = None,
    from_: Annotated[
        float | None,
        typer.Option(
            "--from",
            metavar="S",
            help="Where the picture begins, counted from the first launch.  [default: half-way]",
        ),
    ] = None,
    for_: Annotated[
        float, typer.Option("--for", metavar="MS", help="How much it shows.", min=0.1)
    ] = 1e3 * TRACE_S,
    between: Annotated[
        str | None,
        typer.Option(metavar="S:S", help="What the figures are of.  [default: the whole trace]"),
    ] = None,
) -> None:
    """Print how busy lanes and stages were and the gaps between launches, and draw some of it."""
    from voxserve.bench import pictures
    from voxserve.bench import timeline as lanes

    if output:
        pictures.check(output)
    found = lanes.read(trace)
    first_s, last_s = _between(between, found.end_s)
    print(*lanes.summary(found, first_s, last_s), sep="\n")
    if output:
        begin_s = (first_s + last_s) / 2 if from_ is None else from_
        lanes.plot(found, begin_s, begin_s + for_ / 1e3, output)


def _between(text: str | None, end_s: float) -> tuple[float, float]:
    if text is None:
        return 0.0, end_s
    first, colon, last = text.partition(":")
    try:
        span = float(first), min(float(last), end_s)
    except ValueError:
        colon = ""
    if not colon or span[0] >= span[1]:
        options.stop(f"--between {text} is not FROM:TO in seconds, within the {end_s:.3f} s")
    return span
