"""Text to token ids by the checkpoint's tokenizer.json, control tags included.

Only control tags are read as tokens. The tokens that structure a prompt, spelled out in a text, are
read as ordinary characters, so that no text can break the prompt.
"""

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer

from voxserve.errors import CheckpointError, InvalidRequestError
from voxserve.models.higgs_audio_v3.layout import Marks
from voxserve.text.bpe import StandInWords, TextTokens

TAG = re.compile(r"<\|(?:emotion|style|prosody|sfx):[^|<>]*\|>")
"""What the model takes as a direction: a mood, a manner, how to say it, a sound to make."""

_MARKS = ("<|tts|>", "<|text|>", "<|audio|>", "<|ref_audio|>")
_REF_TEXT = "<|ref_text|>"


class Words(Protocol):
    """A vocabulary. marks, tags: ids of the prompt's own tokens, and of control tags by text."""

    marks: Marks
    tags: Mapping[str, int]

    def plain(self, text: str) -> list[int]:
        """Ids of a text without any tag."""


class FileWords:
    """The checkpoint's own vocabulary. Raises CheckpointError where it cannot be read."""

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer.json"
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            added = {token["content"]: int(token["id"]) for token in content["added_tokens"]}
            content["added_tokens"] = []
            self._tokenizer = Tokenizer.from_str(json.dumps(content))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"cannot read the tokenizer {path}: {error}") from error
        missing = [mark for mark in _MARKS if mark not in added]
        if missing:
            raise CheckpointError(f"the tokenizer has no {', '.join(missing)}")
        speak, begin, audio, ref_audio = (added[mark] for mark in _MARKS)
        self.marks = Marks(speak, begin, audio, ref_audio, added.get(_REF_TEXT))
        self.tags: Mapping[str, int] = {text: i for text, i in added.items() if TAG.fullmatch(text)}

    def plain(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


class DummyWords:
    """A vocabulary for dummy weights without files: about as many ids as the real one gives."""

    def __init__(self, size: int) -> None:
        first = size - len(_MARKS) - 1
        self._tokens = TextTokens(StandInWords(first))
        self.marks = Marks(first, first + 1, first + 2, first + 3, first + 4)
        self.tags: Mapping[str, int] = {}

    def plain(self, text: str) -> list[int]:
        return self._tokens.encode(text)


def encode(words: Words, text: str, param: str = "input") -> list[int]:
    """Ids of a text with its tags. Raises InvalidRequestError on a tag that the model lacks, in
    the name of the field `param`."""
    ids: list[int] = []
    place = 0
    for tag in TAG.finditer(text):
        if tag[0] not in words.tags:
            near = difflib.get_close_matches(tag[0], words.tags, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidRequestError(
                f"the model has no control tag {tag[0]}{hint}", param=param, code="unknown_tag"
            )
        ids += words.plain(text[place : tag.start()]) if place < tag.start() else []
        ids.append(words.tags[tag[0]])
        place = tag.end()
    return ids + (words.plain(text[place:]) if place < len(text) else [])
