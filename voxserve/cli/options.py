"""The options that several commands share, and how they become a Config."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from voxserve.config import Config

USAGE_ERROR = 2

Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="Hub id, folder or built-in name.  [default: mini]",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML file of settings, as in configs/."),
]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
Dtype = Annotated[
    str | None, typer.Option(help="Of the weights: auto, float32, bfloat16, float16 or float64.")
]
LoadFormat = Annotated[
    str | None, typer.Option(help="auto, or dummy for random weights of the real shapes.")
]
Deterministic = Annotated[
    bool | None,
    typer.Option(
        "--deterministic", help="The same seed gives the same bytes whatever else runs; slower."
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write what the lanes did, for the Perfetto viewer."),
]
VoicesDir = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Where uploaded voices are kept.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other setting, such as policy.background_batch=4. May be repeated.",
    ),
]


def engine_flags(
    model: str | None, load_format: str | None, device: str | None, dtype: str | None
) -> dict[str, object]:
    """Of the options that every command with an engine has, for `configure`."""
    return {
        "model": model,
        "load_format": load_format,
        "engine.device": device,
        "engine.dtype": dtype,
    }


def configure(file: Path | None, settings: list[str] | None, flags: dict[str, object]) -> "Config":
    """The configuration that the command line asks for.

    flags: dotted key -> value, None where the flag was not given. They win over `settings`
    (KEY=VALUE strings), and both over the environment and the file.
    Exits with one line and code 2 when a key or a value is wrong.
    """
    from voxserve.config import load_config

    overrides: dict[str, Any] = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            stop(f"--set {setting} is not KEY=VALUE")
        _put(overrides, key, _parse(setting, value))
    for key, flag in flags.items():
        if flag is not None:
            _put(overrides, key, flag)
    try:
        return load_config(file, overrides)
    except ValueError as error:
        stop(str(error))


def stop(message: str) -> NoReturn:
    """End the program with one line on stderr and exit code 2."""
    typer.echo(f"voxserve: {message}", err=True)
    raise typer.Exit(USAGE_ERROR)


def _parse(setting: str, value: str) -> object:
    import yaml

    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        stop(f"--set {setting}: the value is not YAML")


def _put(nested: dict[str, Any], dotted: str, value: object) -> None:
    *sections, key = dotted.split(".")
    for section in sections:
        below = nested.setdefault(section, {})
        if not isinstance(below, dict):
            stop(f"--set {dotted}: {section} is already set to {below!r}")
        nested = below
    nested[key] = value
