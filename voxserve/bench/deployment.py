"""The configuration file that a profile leads to."""

import re
from collections.abc import Mapping
from typing import Any

from voxserve.bench.profile_file import Profile

_MAKER = re.compile(r"nvidia|amd|geforce|\b\d+gb\b|hbm\w*|sxm\w*|pcie", re.IGNORECASE)


def file_name(profile: Profile) -> str:
    """MODEL-GPU.yaml, in lower case; of a machine without a GPU, MODEL-cpu.yaml."""
    gpus = profile.machine.get("gpu") or []
    gpu = gpus[0].partition(",")[0] if gpus and profile.device != "cpu" else profile.device
    return f"{_plain(profile.model.rpartition('/')[2])}-{_plain(_MAKER.sub(' ', gpu))}.yaml"


def text(profile: Profile, source: str, extra: Mapping[str, Any]) -> str:
    """The file's content. source: the profile's path from the file's folder. extra: dotted keys
    that were given."""
    winner = profile.choice.winner if profile.choice else None
    settings: dict[str, Any] = {"engine.codec_sms": profile.codec_sms}
    settings |= winner.settings if winner else {}
    settings = dict(extra) | settings | {"engine.profile": source}
    lines = [*_told(profile), f"model: {profile.model}"]
    sections: dict[str, list[str]] = {}
    for key, value in settings.items():
        section, dot, name = key.partition(".")
        if dot:
            sections.setdefault(section, []).append(f"  {name}: {_yaml(value)}")
        else:
            lines.append(f"{section}: {_yaml(value)}")
    for section, entries in sections.items():
        lines += ["", f"{section}:", *entries]
    return "\n".join(lines) + "\n"


def _told(profile: Profile) -> list[str]:
    gpus = profile.machine.get("gpu") or ["no GPU"]
    lines = [f"# Made by `voxserve profile` on {profile.made_at[:10]}: {gpus[0]}, {profile.dtype}."]
    if profile.choice:
        lines.append("# Requests a second that LM and codec sustain side by side:")
        for one in profile.choice.candidates:
            mark = "  <- chosen" if one.name == profile.choice.chosen else ""
            lines.append(f"#   {one.name}: {one.lm_rate:.3g} and {one.codec_rate:.3g}{mark}")
    return lines


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def _yaml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
