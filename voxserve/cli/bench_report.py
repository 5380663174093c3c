"""`voxserve bench report`: tables and pictures of a folder that a sweep or a profile left."""

from pathlib import Path
from typing import Annotated

import typer

from voxserve.cli import options


def report(
    folder: Annotated[Path, typer.Argument(help="Of `bench sweep` or `voxserve profile`.")],
) -> None:
    """Write the report of a sweep, or draw a profile, from the JSON files in a folder.

    For machines without matplotlib, and for runs that were cut short.
    """
    from voxserve.bench import ablation_run, profile_file, profile_plot
    from voxserve.bench.report import write_report
    from voxserve.bench.result import read

    profile = folder / "profile.json"
    results = [read(path) for path in sorted(folder.glob("[0-9][0-9].json"))]
    if not (results or profile.exists()):
        options.stop(f"{folder} holds neither results of a sweep nor a profile")
    if results:
        print(write_report(results, folder, ablation_run.failures_in(folder)))
    if profile.exists():
        print(*profile_plot.plots(profile_file.read(profile), folder), sep="\n")
