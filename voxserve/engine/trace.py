"""`--trace`: what the lanes did, as trace events that Perfetto and Chrome open."""

import logging
from pathlib import Path
from typing import Any

import msgspec

from voxserve.engine.lanes import LaneDone
from voxserve.scheduler.launches import Lane

LIMIT_BYTES = 256 * 2**20
"""A launch of one row takes 170 bytes, one of 140 rows 620."""

_log = logging.getLogger(__name__)
_TAIL = b"\n]}\n"


class Trace:
    """Collects launches and writes them to a file that is valid JSON after every `flush`.

    One track a lane; times are CLOCK_MONOTONIC in microseconds. A file of `limit_bytes` gets no
    more launches. Raises OSError when the file cannot be written.
    """

    def __init__(self, path: Path, pid: int, limit_bytes: int = LIMIT_BYTES) -> None:
        self._pid, self._path = pid, path
        self._limit_bytes = limit_bytes
        self._full = False
        self._pending: list[dict[str, Any]] = []
        self._file = path.open("wb")
        self._file.write(b'{"displayTimeUnit": "ms", "traceEvents": [')
        self._separator = b"\n"
        self._add(ph="M", name="process_name", args={"name": "voxserve engine"})
        for lane in Lane:
            self._add(ph="M", name="thread_name", tid=lane + 1, args={"name": lane.name})
        self.flush()

    def launch(self, done: LaneDone) -> None:
        """Note one launch that has run."""
        if self._full:
            return
        launch = done.launch
        self._add(
            ph="X",
            name=launch.stage.name.lower(),
            tid=launch.lane + 1,
            ts=float(done.begin_s * 1e6),
            dur=float((done.end_s - done.begin_s) * 1e6),
            args={
                "number": launch.number,
                "rows": len(launch.requests),
                "bucket": [launch.rows, launch.units],
                "reason": launch.reason,
                "slots": launch.slots.tolist(),
                "error": done.error,
            },
        )

    def flush(self) -> None:
        """Write what was noted, with the closing brackets, and stand before them again."""
        for event in self._pending:
            self._file.write(self._separator + msgspec.json.encode(event))
            self._separator = b",\n"
        self._pending.clear()
        if not self._full and self._file.tell() >= self._limit_bytes:
            self._full = True
            _log.warning("%s is full: launches from here on are not in it", self._path)
        self._file.write(_TAIL)
        self._file.flush()
        self._file.seek(-len(_TAIL), 1)

    def close(self) -> None:
        self.flush()
        self._file.close()

    def _add(self, **event: Any) -> None:
        self._pending.append({"pid": self._pid, "tid": 0, **event})
