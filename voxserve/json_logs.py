"""Log lines as JSON, alike in both processes. No text, no audio and no key ever goes into one."""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any


class JsonFormatter(logging.Formatter):
    """One object a line; `extra={"fields": {...}}` adds keys."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(levels: Mapping[str, str]) -> None:
    """Send the records of these loggers to stderr, at least at the level given. "" is the root.

    Python's warnings, and an exception that ends the process, become lines as well.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    for name, at_least in levels.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(at_least.upper())
        logger.propagate = False
    logging.captureWarnings(True)
    sys.excepthook = _on_crash


def _on_crash(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    logging.getLogger("voxserve").critical("crashed", exc_info=(kind, error, traceback))
