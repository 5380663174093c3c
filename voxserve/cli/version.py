"""`voxserve version`."""

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

import typer

from voxserve import __version__


def version() -> None:
    """Print the versions of voxserve, Python and torch."""
    typer.echo(f"voxserve {__version__}, Python {platform.python_version()}, torch {torch()}")


def torch() -> str:
    """The installed version, without the second that importing torch takes."""
    try:
        return installed("torch")
    except PackageNotFoundError:
        return "not installed"
