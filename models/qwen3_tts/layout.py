"""The prompt's positions as integers, in the reference's layouts.

A position is the sum of a text side and a code side. Row columns: TEXT, a text id or NONE; CODE, an
id of the talker's code vocabulary or NONE; CLIP, a frame of the reference clip's codes, SPEAKER for
the clip's voice vector, or NONE. Follows `Qwen3TTSForConditionalGeneration.generate` and its
`generate_icl_prompt` (qwen-tts 0.1.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from voxserve.models.qwen3_tts.config import Qwen3Config

NONE = -1
SPEAKER = -2
TEXT, CODE, CLIP = 0, 1, 2
COLUMNS = 3

Row = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """rows: the prefill's positions. inject: text ids for the decode steps, one each."""

    rows: list[Row]
    inject: list[int]


def prefix(
    config: Qwen3Config,
    role: Sequence[int],
    instructions: Sequence[int],
    language: int | None,
    speaker: Row | None,
) -> list[Row]:
    """What stands before the text in every mode.

    role: the three ids of an assistant's turn. instructions: ids of the user's turn, or nothing.
    language: its code id, None to leave the choice to the model. speaker: the row of the voice.
    """
    control, pad = config.talker.control, config.text_pad
    rows = [(i, NONE, NONE) for i in (*instructions, *role)]
    if language is None:
        tags = [control.nothink, control.think_bos, control.think_eos]
    else:
        tags = [control.think, control.think_bos, language, control.think_eos]
    rows += [(pad, tag, NONE) for tag in tags]
    if speaker is not None:
        rows.append((pad, speaker[CODE], speaker[CLIP]))
    rows.append((config.text_bos, control.pad, NONE))
    return rows


def whole(config: Qwen3Config, before: list[Row], text: Sequence[int]) -> Layout:
    """The whole text in the prompt; decode steps get padding."""
    pad, bos = config.talker.control.pad, config.talker.control.bos
    rows = [(i, pad, NONE) for i in (*text, config.text_eos)]
    return Layout([*before, *rows, (config.text_pad, bos, NONE)], [])


def streamed(config: Qwen3Config, before: list[Row], text: Sequence[int]) -> Layout:
    """One id of the text in the prompt, one more a decode step. `text` holds the end mark."""
    first = (text[0], config.talker.control.bos, NONE)
    return Layout([*before, first], list(text[1:]))


def continued(
    config: Qwen3Config,
    before: list[Row],
    spoken: Sequence[int],
    frames: int,
    text: Sequence[int],
    *,
    stream: bool,
) -> Layout:
    """Speech that goes on from a clip.

    spoken: ids of the clip's transcript; frames: of the clip. `text` holds the end mark.
    """
    control, pad = config.talker.control, config.text_pad
    words = [*spoken, *text]
    sounds = [(control.bos, NONE), *((NONE, frame) for frame in range(frames))]
    if not stream:
        said = [(i, control.pad, NONE) for i in words]
        return Layout([*before, *said, *((pad, code, clip) for code, clip in sounds)], [])
    padded = words + [pad] * (len(sounds) - len(words))
    both = [(i, *sound) for i, sound in zip(padded, sounds, strict=False)]
    return Layout([*before, *both], words[len(sounds) :])
