"""The API process's logs: JSON lines on stderr."""

import logging
from typing import Any

from voxserve import json_logs


def configure(level: str) -> None:
    """Send the server's and uvicorn's records to stderr. uvicorn's own access log stays off."""
    json_logs.configure({"": "warning", "voxserve": level, "uvicorn": "warning"})


def log_fields(logger: logging.Logger, message: str, fields: dict[str, Any]) -> None:
    """An info line with extra keys."""
    logger.info(message, extra={"fields": fields})
