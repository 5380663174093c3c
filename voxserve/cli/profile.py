"""`voxserve profile`: time a model on this machine, and choose how to divide the device."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from voxserve.cli import options

if TYPE_CHECKING:
    from voxserve.bench.profile_file import Profile

Output = Annotated[
    Path, typer.Option("--output", "-o", help="Folder for the profile, its pictures and a config.")
]
Splits = Annotated[
    str,
    typer.Option(
        metavar="auto|none|SMS,…",
        help="SMs for the codec, to try; none keeps engine.codec_sms.",
    ),
]
Buckets = Annotated[
    str | None,
    typer.Option(
        metavar="ROWS,…",
        help="Rows of the decode steps that splits are compared at.  [default: 1 and the largest]",
    ),
]
Target = Annotated[
    float | None,
    typer.Option(help="Requests/s that the codec must keep up with.  [default: what the LM does]"),
]


def profile(
    model: options.Model = None,
    output: Output = Path("profile"),
    minutes: Annotated[
        float, typer.Option(help="For all measurements, loading aside.", min=0.01)
    ] = 3.0,
    splits: Splits = "auto",
    buckets: Buckets = None,
    target: Target = None,
    plot: Annotated[bool, typer.Option(help="Draw the pictures.")] = True,
    config: options.ConfigFile = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    load_format: options.LoadFormat = None,
    set_: options.Settings = None,
) -> None:
    """Time every executable, alone and beside the other lanes, and choose the split that carries
    the most."""
    flags = options.engine_flags(model, load_format, device, dtype)
    settings = options.configure(config, set_, flags)
    tried = None if splits == "auto" else () if splits == "none" else _numbers("--splits", splits)
    rows = _numbers("--buckets", buckets) if buckets else None

    from voxserve.bench import pictures
    from voxserve.bench import profile as bench

    output.mkdir(parents=True, exist_ok=True)
    if plot:
        pictures.check(output / "runs.png")
    made = bench.profile(settings, bench.Task(minutes, tried, rows, target), _report)
    _write(made, output, settings.model_dump(mode="json", exclude_unset=True), plot)


def _write(made: "Profile", output: Path, given: dict[str, object], plot: bool) -> None:
    """Everything that a profile leads to. given: the settings that differ from the defaults."""
    from voxserve.bench import deployment, profile_file, profile_plot

    file = output / "profile.json"
    profile_file.write(made, file)
    deployed = output / deployment.file_name(made)
    deployed.write_text(deployment.text(made, file.name, _dotted(given)), encoding="utf-8")
    drawn = profile_plot.plots(made, output) if plot else []
    for one in made.choice.candidates if made.choice else ():
        chosen = "  <- chosen" if made.choice and one.name == made.choice.chosen else ""
        print(one.told + chosen)
    print(f"{len(made.timings)} executables of {made.model} on {made.device}")
    print(*map(str, (file, deployed, *drawn)), sep="\n")


def _dotted(given: dict[str, object]) -> dict[str, object]:
    """Nested settings by dotted key, without the model and the API's."""
    flat: dict[str, object] = {}
    for name, value in given.items():
        if isinstance(value, dict) and name in ("engine", "policy"):
            flat |= {f"{name}.{key}": part for key, part in value.items()}
        elif name == "load_format":
            flat[name] = value
    return flat


def _numbers(name: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        options.stop(f"{name} {text} is not a list of whole numbers")
    return tuple(int(part) for part in parts)


def _report(what: str, done: int, total: int) -> None:
    if done in (0, total) or done % 10 == 0 or total < 20:
        print(f"{what}: {done}/{total}", file=sys.stderr, flush=True)
