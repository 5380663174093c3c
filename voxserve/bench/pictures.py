"""Matplotlib, asked for only where a picture is drawn: it is an extra of the package."""

from pathlib import Path
from typing import TYPE_CHECKING

from voxserve.errors import InvalidRequestError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_AN_INCH = 150


def check(path: Path) -> None:
    """Raise InvalidRequestError now if a picture could not be written into `path` later."""
    figure, _ = subplots(1, 1.0, 1.0)
    known = figure.canvas.get_supported_filetypes()
    if path.suffix.lower().lstrip(".") not in known:
        raise InvalidRequestError(f"{path} does not end in one of {', '.join(sorted(known))}")
    if not path.absolute().parent.is_dir():
        raise InvalidRequestError(f"there is no folder {path.absolute().parent}")


def subplots(rows: int, width_in: float, height_in: float) -> "tuple[Figure, list[Axes]]":
    """Panels one above the other. Raises InvalidRequestError when matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidRequestError(
            "pictures need matplotlib: pip install 'voxserve[bench]'"
        ) from error
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False)
    return figure, [axes[row, 0] for row in range(rows)]


def save(figure: "Figure", path: Path) -> None:
    """The ending of `path` says the format. Raises InvalidRequestError for one that is unknown."""
    try:
        figure.savefig(path, dpi=DOTS_AN_INCH)
    except (ValueError, OSError) as error:
        raise InvalidRequestError(f"cannot write {path}: {error}") from error


def log_scale(panel: "Axes") -> None:
    """A logarithmic axis of ordinates with plain numbers at 1, 2 and 5 of every decade."""
    from matplotlib.ticker import LogLocator, NullFormatter

    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())
