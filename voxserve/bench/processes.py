"""The processes of a server on this machine and what they hold, as Linux and nvidia-smi tell it."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_LISTENS = "0A"
_MIB = 2**20


def of_port(port: int) -> dict[int, str]:
    """Who listens there, and all below them: process id to name. Empty where none can be seen.

    The listener is `api` and our engine's process `engine`; others have the name of their program.
    """
    sockets = set(_listening(port))
    found: dict[int, str] = {}
    parents: dict[int, int] = {}
    for pid in _pids():
        with suppress(OSError, ValueError):
            parents[pid] = int((_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if sockets and sockets & set(_links(pid)):
                found[pid] = "api"
    # A child may have a lower number than its parent, so more than one look is needed.
    while True:
        below = {pid: _name(pid) for pid, parent in parents.items() if parent in found}
        if not below.keys() - found.keys():
            return found
        found = below | found


def resident_mib(processes: dict[int, str]) -> dict[str, float]:
    """Memory of the host by name, processes of one name together."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    total: dict[str, float] = {}
    for pid, name in processes.items():
        with suppress(OSError):
            pages = int((_PROC / f"{pid}/statm").read_text().split()[1])
            total[name] = total.get(name, 0.0) + pages * page_bytes / _MIB
    return total


def open_files(processes: dict[int, str]) -> dict[str, int]:
    """Likewise: files, sockets and pipes."""
    total: dict[str, int] = {}
    for pid, name in processes.items():
        with suppress(OSError):
            total[name] = total.get(name, 0) + len(os.listdir(_PROC / f"{pid}/fd"))
    return total


def visible_gpus(processes: Iterable[int]) -> str | None:
    """What CUDA_VISIBLE_DEVICES of these processes says; None: nothing."""
    for pid in processes:
        with suppress(OSError):
            for variable in (_PROC / f"{pid}/environ").read_bytes().split(b"\0"):
                name, _, value = variable.partition(b"=")
                if name == b"CUDA_VISIBLE_DEVICES" and value:
                    return value.decode()
    return None


def gpu_mib(gpus: str | None) -> dict[str, float]:
    """Memory in use by GPU, of all programs together. gpus: indices or UUIDs; None: every one.

    Empty where there is no nvidia-smi, or it knows no such GPU.
    """
    if shutil.which("nvidia-smi") is None:
        return {}
    command = ["nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"]
    command += ["-i", gpus] if gpus else []
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {}
    for line in run.stdout.splitlines() if run.returncode == 0 else []:
        index, _, used = line.partition(",")
        with suppress(ValueError):
            found[f"GPU {index.strip()}"] = float(used)
    return found


def _listening(port: int) -> Iterator[str]:
    """The sockets that listen on a port, as links in /proc name them."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield f"socket:[{fields[9]}]"


def _pids() -> Iterator[int]:
    with suppress(OSError):
        yield from (int(name) for name in os.listdir(_PROC) if name.isdigit())


def _links(pid: int) -> Iterator[str]:
    folder = _PROC / f"{pid}/fd"
    for name in os.listdir(folder):
        with suppress(OSError):
            yield os.readlink(folder / name)


def _name(pid: int) -> str:
    with suppress(OSError):
        words = (_PROC / f"{pid}/cmdline").read_bytes().split(b"\0")
        return "engine" if b"voxserve.engine" in words else Path(os.fsdecode(words[0])).name
    return "gone"
