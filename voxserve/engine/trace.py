"""`--trace`: what the lanes did, as trace events that Perfetto and Chrome open."""

import json
from pathlib import Path
from typing import Any

from voxserve.engine.lanes import LaneDone
from voxserve.scheduler.launches import Lane

_TAIL = b"\n]}\n"


class Trace:
    """Collects launches and writes them to a file that is valid JSON after every `flush`.

    One track a lane; times are CLOCK_MONOTONIC in microseconds. Raises OSError when the file
    cannot be written.
    """

    def __init__(self, path: Path, pid: int) -> None:
        self._pid = pid
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
        launch = done.launch
        self._add(
            ph="X",
            name=launch.stage.name.lower(),
            tid=launch.lane + 1,
            ts=done.begin_s * 1e6,
            dur=(done.end_s - done.begin_s) * 1e6,
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
            self._file.write(self._separator + json.dumps(event).encode())
            self._separator = b",\n"
        self._pending.clear()
        self._file.write(_TAIL)
        self._file.flush()
        self._file.seek(-len(_TAIL), 1)

    def close(self) -> None:
        self.flush()
        self._file.close()

    def _add(self, **event: Any) -> None:
        self._pending.append({"pid": self._pid, "tid": 0, **event})
