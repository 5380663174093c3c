"""The prompt's positions as integers.

Row columns: TEXT, a text id or NONE; CLIP, a delayed row of the reference clip's codes or NONE.
Every position has one of the two. The order is that of sglang-omni and vllm-omni.
"""

from collections.abc import Sequence
from dataclasses import dataclass

NONE = -1
TEXT, CLIP = 0, 1
COLUMNS = 2

Row = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Marks:
    """Ids of the tokens that structure a prompt. ref_text: None in checkpoints that lack it."""

    speak: int
    text: int
    audio: int
    ref_audio: int
    ref_text: int | None


def rows(marks: Marks, text: Sequence[int], spoken: Sequence[int], clip_rows: int) -> list[Row]:
    """spoken: ids of the clip's transcript, may be empty. clip_rows: its delayed rows, 0 without
    a clip."""
    before = [marks.speak]
    if clip_rows:
        if spoken and marks.ref_text is not None:
            before += [marks.ref_text, *spoken]
        before.append(marks.ref_audio)
    return [
        *((i, NONE) for i in before),
        *((NONE, row) for row in range(clip_rows)),
        *((i, NONE) for i in (marks.text, *text, marks.audio)),
    ]
