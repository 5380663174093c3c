"""`voxserve profile`: time every executable of a model on this machine."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from voxserve.cli import options


def profile(
    model: options.Model = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for the profile, JSON.")
    ] = Path("profile.json"),
    plot: Annotated[Path | None, typer.Option(help="Draw it here (.png, .svg, .pdf).")] = None,
    budget: Annotated[
        float, typer.Option(help="Seconds for each executable, alone and beside.", min=0.01)
    ] = 0.5,
    config: options.ConfigFile = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    load_format: options.LoadFormat = None,
    set_: options.Settings = None,
) -> None:
    """Time every executable of a model, alone and beside the other lanes' load."""
    flags: dict[str, object] = {
        "model": model,
        "load_format": load_format,
        "engine.device": device,
        "engine.dtype": dtype,
    }
    settings = options.configure(config, set_, flags)

    from voxserve.bench import profile as bench
    from voxserve.bench import profile_file, profile_plot

    made = bench.profile(settings, _report, budget)
    profile_file.write(made, output)
    if plot:
        profile_plot.plot(made, plot)
    print(f"{output}: {len(made.timings)} executables of {made.model} on {made.device}")


def _report(what: str, done: int, total: int) -> None:
    if done in (0, total) or done % 10 == 0:
        print(f"{what}: {done}/{total}", file=sys.stderr, flush=True)
