"""Parts of one machine, so that servers can be measured side by side: a GPU and cores each.

`python -m voxserve.bench.places GPU CORES COMMAND…` becomes that command, in that place alone.
"""

import os
import sys
from collections.abc import Sequence

import msgspec

from voxserve.errors import InvalidRequestError


class Place(msgspec.Struct, frozen=True):
    """Where a server and its clients run. gpu: as nvidia-smi counts them, or a UUID."""

    gpu: str
    cores: list[int]

    def __str__(self) -> str:
        return f"GPU {self.gpu}, cores {ranges(self.cores)}"


def places(gpus: Sequence[str], cores: Sequence[int] | None = None) -> list[Place]:
    """A place a GPU, with equal shares of the cores (of those this process may use, if not given).

    Raises InvalidRequestError when a GPU is named twice, or there are fewer cores than GPUs.
    """
    free = sorted(os.sched_getaffinity(0) if cores is None else cores)
    if len(set(gpus)) < len(gpus):
        raise InvalidRequestError(f"GPUs {', '.join(gpus)}: one is named twice")
    each = len(free) // len(gpus)
    if not each:
        raise InvalidRequestError(f"{len(gpus)} GPUs side by side, but only {len(free)} cores")
    return [Place(gpu, free[each * i : each * (i + 1)]) for i, gpu in enumerate(gpus)]


def placed(command: Sequence[str], place: Place | None) -> list[str]:
    """The command line that runs `command` there, from its first thread on."""
    if place is None:
        return list(command)
    cores = ",".join(map(str, place.cores))
    return [sys.executable, "-m", __name__, place.gpu, cores, *command]


def ranges(cores: Sequence[int]) -> str:
    """As taskset writes them: 0-15,32."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def main() -> None:
    gpu, cores, *command = sys.argv[1:]
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    # CUDA would otherwise number the fastest GPU first.
    os.putenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    os.putenv("CUDA_VISIBLE_DEVICES", gpu)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
