"""`voxserve check`: what this machine and this model are, before anything is started."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from voxserve import __version__
from voxserve.cli import options
from voxserve.cli.version import torch

if TYPE_CHECKING:
    from voxserve.config import Config
    from voxserve.plugin import Checkpoint, HostLogic

GREEN_CONTEXT_DRIVER = 550
"""First NVIDIA driver series whose API (CUDA 12.4) can split a GPU's SMs into green contexts."""

QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")

Row = tuple[str, str]


def check(
    model: options.Model = None,
    config: options.ConfigFile = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    load_format: options.LoadFormat = None,
    set_: options.Settings = None,
) -> None:
    """Show the device, the versions, the model's files and how memory will be divided."""
    flags = options.engine_flags(model, load_format, device, dtype)
    settings = options.configure(config, set_, flags)

    from voxserve import checkpoints

    plugin, checkpoint = checkpoints.find(settings.model, dummy=settings.load_format == "dummy")
    host = plugin.host(checkpoint)
    for name, value in (*_machine(), *_model(host, checkpoint), *_memory(settings, host)):
        typer.echo(f"{name:10}{value}")


def _machine() -> Iterator[Row]:
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield "voxserve", f"{__version__}, Python {platform.python_version()}, torch {torch()}"
    yield "machine", f"{platform.machine()}, {os.cpu_count()} cores, {_size(memory_bytes)}"
    gpus = list(_gpus())
    yield from gpus or [("GPU", "none found")]


def _gpus() -> Iterator[Row]:
    if shutil.which(QUERY[0]) is None:
        return
    listed = subprocess.run(QUERY, capture_output=True, text=True, check=False)
    for line in listed.stdout.splitlines() if listed.returncode == 0 else []:
        name, memory, driver = (part.strip() for part in line.split(","))
        supported = int(driver.split(".")[0]) >= GREEN_CONTEXT_DRIVER
        green = "yes" if supported else f"no, they need driver {GREEN_CONTEXT_DRIVER} or newer"
        yield "GPU", f"{name}, {memory}, driver {driver}, green contexts: {green}"


def _model(host: "HostLogic", checkpoint: "Checkpoint") -> Iterator[Row]:
    info, spec = host.info, host.spec
    yield "model", f"{info.name} ({checkpoint.name}), licence {info.licence or 'not stated'}"
    if info.notice:
        yield "", info.notice
    yield (
        "audio",
        f"{spec.sample_rate_hz} Hz, {1 / spec.frame_s:g} frames/s of {spec.codebooks} codes",
    )
    if checkpoint.folder is None:
        yield "files", "none: random weights of the published shapes"
        return
    yield "files", str(checkpoint.folder)
    for path in sorted(checkpoint.folder.rglob("*")):
        if path.is_file():
            yield "", f"{path.relative_to(checkpoint.folder)}  {_size(path.stat().st_size)}"
    if checkpoint.dummy:
        yield "", "random weights"


def _memory(settings: "Config", host: "HostLogic") -> Iterator[Row]:
    from voxserve.engine.build import target_of
    from voxserve.engine.memory import describe, sizes_for

    try:
        target = target_of(settings.engine)
        device, dtype = target.device, target.dtype
        parts = describe(host.spec, sizes_for(host.spec, settings.engine, dtype, device))
    except ValueError as error:
        options.stop(str(error))
    totals: dict[str, int] = {}
    yield "engine", f"{device}, {dtype}, {settings.engine.slots} slots"
    for part in parts:
        kind = part.name.partition(".")[0]
        totals[kind] = totals.get(kind, 0) + part.bytes
    for kind, total in totals.items():
        yield "", f"{kind}  {_size(total)}"
    yield "", f"in all  {_size(sum(part.bytes for part in parts))} beside the weights"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:.1f} GiB"
