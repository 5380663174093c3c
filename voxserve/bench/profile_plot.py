"""The pictures of a profile: run times by stage, and what each split of the device is worth."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from voxserve.bench.pictures import log_scale, save, subplots
from voxserve.bench.plot import COLOURS
from voxserve.bench.profile_file import Choice, Profile, Split, Timing
from voxserve.bench.splits import TIME_SHARING
from voxserve.scheduler.launches import Lane, Stage

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
STEP, BATCH = (Lane.LM, Stage.DECODE), (Lane.BACKGROUND, Stage.CODEC)


def plots(profile: Profile, folder: Path) -> list[Path]:
    """Every picture that the profile has figures for. Raises InvalidRequestError without
    matplotlib."""
    drawn = [folder / "runs.png"]
    plot(profile, drawn[0])
    if profile.choice:
        for name, draw in (
            ("speed.png", plot_speed),
            ("joint.png", plot_joint),
            ("latency.png", plot_latency),
        ):
            draw(profile, folder / name)
            drawn.append(folder / name)
    return drawn


def plot(profile: Profile, path: Path) -> None:
    """Run time against rows, a panel a stage, alone and beside another lane."""
    groups: dict[tuple[str, str], list[Timing]] = {}
    for timing in profile.timings:
        groups.setdefault((timing.lane, timing.stage), []).append(timing)
    figure, axes = subplots(len(groups), 7.0, 2.8 * len(groups))
    for panel, (group, timings) in zip(axes, groups.items(), strict=True):
        _panel(panel, timings)
        panel.set_title(TITLES[group], fontsize="medium")
    axes[-1].set_xlabel("rows of the batch")
    figure.suptitle(_title(profile))
    save(figure, path)


def plot_speed(profile: Profile, path: Path) -> None:
    """Speed of LM steps and codec batches against the SMs that they have, as a share of what they
    do alone on all of them."""
    figure, (panel,) = subplots(1, 7.5, 4.8)
    colours = iter(COLOURS)
    for (lane, stage), part, words in ((STEP, "lm", "LM step"), (BATCH, "codec", "codec batch")):
        for rows in _rows(profile.splits, lane, stage):
            points = list(_points(profile.splits, lane, stage, rows, part))
            whole = next((t for split, _, t in points if not split.codec_sms), None)
            if whole is None:
                continue
            sms = [n for _, n, _ in points]
            colour = next(colours, "#555555")
            label = f"{words}, {rows} rows"
            alone = [whole.alone_s / t.alone_s for _, _, t in points]
            panel.plot(sms, alone, "o-", color=colour, markersize=4, label=label)
            beside = [whole.alone_s / next(iter(t.beside_s.values())) for _, _, t in points]
            panel.plot(sms, beside, "x--", color=colour, linewidth=0.9)
    panel.plot([], [], "x--", color="#555555", linewidth=0.9, label="beside the other lane's load")
    panel.set_xlabel("SMs of the part")
    panel.set_ylabel("speed, 1 = alone on all SMs")
    panel.set_xlim(left=0)
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    panel.legend(fontsize="x-small")
    figure.suptitle(_title(profile))
    save(figure, path)


def plot_joint(profile: Profile, path: Path) -> None:
    """What LM and codec carry at once on each split, against the line of time sharing."""
    choice = _choice(profile)
    figure, (panel,) = subplots(1, 7.5, 5.2)
    panel.plot(
        [choice.lm_alone, 0],
        [0, choice.codec_alone],
        ":",
        color="#555555",
        label="time sharing without gaps",
    )
    for one in choice.candidates:
        if one.name == TIME_SHARING:
            at, style, words = (
                (one.capacity, one.capacity),
                "s",
                "time sharing, with the host's gaps",
            )
        else:
            at, style, words = (one.lm_rate, one.codec_rate), "o", None
        won = one.name == choice.chosen
        colour = COLOURS[1] if won else COLOURS[0]
        panel.plot(*at, style, color=colour, markersize=8 if won else 5, label=words)
        name = f"{one.name} (chosen)" if won else one.name
        panel.annotate(name, at, xytext=(6, 4), textcoords="offset points", fontsize="x-small")
    most = max(one.capacity for one in choice.candidates)
    panel.plot([0, 1.25 * most], [0, 1.25 * most], color="#bbbbbb", linewidth=0.8)
    panel.annotate("both alike", (1.2 * most, 1.2 * most), fontsize="x-small", color="#888888")
    if choice.target:
        panel.axhline(choice.target, color="#888888", linewidth=0.8, linestyle="--")
    panel.set_xlabel("LM, requests/s")
    panel.set_ylabel("codec, requests/s")
    panel.set_xlim(0, 1.15 * max(choice.lm_alone, *(c.lm_rate for c in choice.candidates)))
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    panel.legend(fontsize="x-small", loc="upper right")
    figure.suptitle(_title(profile))
    save(figure, path)


def plot_latency(profile: Profile, path: Path) -> None:
    """Time of a codec batch against the SMs of the codec."""
    figure, (panel,) = subplots(1, 7.5, 4.5)
    for number, rows in enumerate(_rows(profile.splits, *BATCH)):
        points = list(_points(profile.splits, *BATCH, rows, "codec"))
        colour = COLOURS[number % len(COLOURS)]
        sms = [n for _, n, _ in points]
        units = points[0][2].units
        alone = [1e3 * t.alone_s for _, _, t in points]
        panel.plot(sms, alone, "o-", color=colour, label=f"{rows} chunks of {units} frames")
        beside = [1e3 * next(iter(t.beside_s.values())) for _, _, t in points]
        panel.plot(sms, beside, "x--", color=colour, linewidth=0.9)
    panel.plot([], [], "x--", color="#555555", linewidth=0.9, label="beside the LM")
    log_scale(panel)
    panel.set_xlabel("SMs of the codec")
    panel.set_ylabel("ms a batch")
    panel.set_xlim(left=0)
    panel.grid(alpha=0.3)
    panel.legend(fontsize="x-small")
    figure.suptitle(_title(profile))
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
            label = f"beside the {other.lower()} lane" if number == 0 else None
            panel.plot(rows, beside, "x--", color=colour, linewidth=0.9, label=label)
    panel.set_xscale("log", base=2)
    log_scale(panel)
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_ylabel("ms a run")
    panel.grid(alpha=0.3)
    panel.legend(fontsize="x-small")


def _rows(splits: list[Split], lane: Lane, stage: Stage) -> list[int]:
    """The batches that were timed on any split, small ones first."""
    return sorted({timing.rows for split in splits for timing in split.of(lane, stage)})


def _points(
    splits: list[Split], lane: Lane, stage: Stage, rows: int, part: str
) -> Iterator[tuple[Split, int, Timing]]:
    """(split, SMs of the part, timing) of one batch on every split, few SMs first."""
    found = [
        (split, split.sms.get(part, split.codec_sms), timing)
        for split in splits
        for timing in split.of(lane, stage)
        if timing.rows == rows
    ]
    return iter(sorted(found, key=lambda point: point[1]))


def _choice(profile: Profile) -> Choice:
    assert profile.choice is not None
    return profile.choice


def _title(profile: Profile) -> str:
    gpus = profile.machine.get("gpu") or []
    where = gpus[0].partition(",")[0] if gpus and profile.device != "cpu" else profile.device
    return f"{profile.model} on {where}, {profile.dtype}"
