"""`voxserve bench compare`: a frozen prediction beside the measurement that came after it."""

from pathlib import Path
from typing import Annotated

import typer

from voxserve.cli import bench_options as shared


def compare(
    predicted: Annotated[Path, typer.Argument(help="JSON file of `bench simulate`.")],
    measured: Annotated[Path, typer.Argument(help="JSON file of `bench serve`.")],
    within: Annotated[
        float, typer.Option(help="How far the capacity may be off, as a share.", min=0)
    ] = 0.15,
    json_: shared.Json = None,
    plot: shared.Picture = None,
) -> None:
    """Print both capacities; exit code 1 when the prediction does not hold."""
    from voxserve.bench import comparison
    from voxserve.bench.plot import plot as draw
    from voxserve.bench.result import read

    shared.check_outputs(json_, plot)
    ours, theirs = read(predicted), read(measured)
    found = comparison.compare(ours, theirs)
    print(*comparison.lines(found, ours, theirs, within), sep="\n")
    if json_:
        comparison.write(found, json_)
    if plot:
        draw([ours, theirs], plot)
    if not found.holds(within):
        raise typer.Exit(1)
