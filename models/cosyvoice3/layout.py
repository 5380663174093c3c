"""How a prompt is laid out: rows of (text id, speech id, code of the clip), each -1 where absent.

The text columns are read from the Qwen's table, the speech column from the speech table, and the
last one names a code of the request's clip, which the device looks up.
"""

from collections.abc import Sequence

from voxserve.models.cosyvoice3.config import LmConfig

TEXT, CODE, CLIP = 0, 1, 2
COLUMNS = 3
NONE = -1

Row = tuple[int, int, int]


def prompt(config: LmConfig, text: Sequence[int], clip_codes: int) -> list[Row]:
    """Start, text, task, and the clip's first `clip_codes` codes, which the speech continues."""
    return [
        (NONE, config.start, NONE),
        *((token, NONE, NONE) for token in text),
        (NONE, config.task, NONE),
        *((NONE, NONE, code) for code in range(clip_codes)),
    ]
