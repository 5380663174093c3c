"""The picture of a profile: run time against rows, by stage, alone and beside another lane."""

from pathlib import Path
from typing import TYPE_CHECKING

from voxserve.bench.pictures import log_scale, save, subplots
from voxserve.bench.plot import COLOURS
from voxserve.bench.profile_file import Profile, Timing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {
    ("LM", "ENCODE"): "encode",
    ("LM", "PREFILL"): "prefill",
    ("LM", "DECODE"): "decode",
    ("BACKGROUND", "CODEC"): "codec, background lane",
    ("URGENT", "CODEC"): "codec, urgent lane",
}
UNITS = {"ENCODE": "s", "PREFILL": "tokens", "DECODE": "", "CODEC": "frames"}


def plot(profile: Profile, path: Path) -> None:
    """A panel a stage. Raises InvalidRequestError when matplotlib is missing."""
    groups: dict[tuple[str, str], list[Timing]] = {}
    for timing in profile.timings:
        groups.setdefault((timing.lane, timing.stage), []).append(timing)
    figure, axes = subplots(len(groups), 7.0, 2.8 * len(groups))
    for panel, (group, timings) in zip(axes, groups.items(), strict=True):
        _panel(panel, timings)
        panel.set_title(TITLES[group], fontsize="medium")
    axes[-1].set_xlabel("rows of the batch")
    figure.suptitle(f"{profile.model} on {profile.device}, {profile.dtype}")
    save(figure, path)


def _panel(panel: "Axes", timings: list[Timing]) -> None:
    for number, units in enumerate(sorted({timing.units for timing in timings})):
        these = [timing for timing in timings if timing.units == units]
        rows = [timing.rows for timing in these]
        colour = COLOURS[number % len(COLOURS)]
        name = f"{units} {UNITS[these[0].stage]}" if units else "one step"
        panel.plot(rows, [1e3 * t.alone_s for t in these], "o-", color=colour, label=name)
        for other in these[0].beside_s:
            beside = [1e3 * timing.beside_s[other] for timing in these]
            panel.plot(
                rows,
                beside,
                "x--",
                color=colour,
                linewidth=0.9,
                label=f"beside the {other.lower()} lane" if number == 0 else None,
            )
    panel.set_xscale("log", base=2)
    log_scale(panel)
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_ylabel("ms a run")
    panel.grid(alpha=0.3)
    panel.legend(fontsize="x-small")
