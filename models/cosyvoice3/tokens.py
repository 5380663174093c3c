"""Text to the ids that the language model reads: Qwen's byte-level BPE, and marks within a text.

The reference adds its marks to the tokenizer when it loads it, so their ids follow from their order
here. Those that speech is steered with ([breath], <strong>, single phones) are understood in any
text. Those that frame a prompt (<|…|>) are not: spelled out in a text they are plain characters.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from voxserve.errors import CheckpointError
from voxserve.models.cosyvoice3.config import END_OF_PROMPT, QWEN_FOLDER
from voxserve.plugin import Checkpoint
from voxserve.text.bpe import BpeWords, StandInWords, TextTokens, Words

FRAMES = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|endofprompt|>")
"""Of these the first three are Qwen's own."""
SOUNDS = (
    *("[breath]", "<strong>", "</strong>", "[noise]", "[laughter]", "[cough]", "[clucking]"),
    *("[accent]", "[quick_breath]", "<laughter>", "</laughter>", "[hissing]", "[sigh]"),
    *("[vocalized-noise]", "[lipsmack]", "[mn]"),
)
END_OF_SYSTEM = "<|endofsystem|>"

_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
_PHONES = (
    "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R S SH T TH UH UW V"
    " W Y Z ZH"
)
_PINYIN = (
    "a ai an ang ao b c ch d e ei en eng f g h i ian in ing iu ià iàn iàng iào iá ián iáng iáo iè"
    " ié iòng ióng iù iú iā iān iāng iāo iē iě iōng iū iǎ iǎn iǎng iǎo iǒng iǔ j k l m n o ong ou"
    " p q r s sh t u uang ue un uo uà uài uàn uàng uá uái uán uáng uè ué uì uí uò uó uā uāi uān"
    " uāng uē uě uī uō uǎ uǎi uǎn uǎng uǐ uǒ vè w x y z zh à ài àn àng ào á ái án áng áo è èi èn"
    " èng èr é éi én éng ér ì ìn ìng í ín íng ò òng òu ó óng óu ù ùn ú ún ā āi ān āng āo ē ēi ēn"
    " ēng ě ěi ěn ěng ěr ī īn īng ō ōng ōu ū ūn ǎ ǎi ǎn ǎng ǎo ǐ ǐn ǐng ǒ ǒng ǒu ǔ ǔn ǘ ǚ ǜ"
)


def phones() -> list[str]:
    """Single sounds, as marks: ARPABET, vowels also with each stress, then parts of pinyin."""
    vowels = _VOWELS.split()
    arpabet = [
        phone + stress
        for phone in _PHONES.split()
        for stress in (("", "0", "1", "2") if phone in vowels else ("",))
    ]
    return [f"[{phone}]" for phone in (*arpabet, *_PINYIN.split())]


def marks() -> list[str]:
    """Every mark in the order of the ids."""
    return [*FRAMES, *SOUNDS, END_OF_SYSTEM, *phones()]


class MarkedTokens:
    """Ids of texts with marks in them. end_of_prompt: the id that ends an instruction."""

    def __init__(self, words: Words, ids: Mapping[str, int]) -> None:
        self._plain = TextTokens(words)
        self._ids = {mark: ids[mark] for mark in (*SOUNDS, *phones())}
        longest_first = sorted(self._ids, key=len, reverse=True)
        self._marks = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        self.end_of_prompt = ids["<|endofprompt|>"]

    def encode(self, text: str) -> list[int]:
        made: list[int] = []
        for part in self._marks.split(text):
            if part:
                made += [self._ids[part]] if part in self._ids else self._plain.encode(part)
        return made


def mark_ids(known: Mapping[str, int], first: int) -> dict[str, int]:
    """Ids of all marks: those that the tokenizer knows keep theirs, the others follow from `first`
    on in order."""
    ids = dict(known)
    for mark in marks():
        if mark not in ids:
            ids[mark] = first
            first += 1
    return ids


def load_tokens(checkpoint: Checkpoint, vocabulary: int) -> MarkedTokens:
    """The checkpoint's tokens, or a stand-in with as many ids where dummy weights come without.

    Raises CheckpointError.
    """
    folder = None if checkpoint.folder is None else checkpoint.folder / QWEN_FOLDER
    if folder is None or (checkpoint.dummy and not (folder / "vocab.json").exists()):
        first = min(END_OF_PROMPT - FRAMES.index("<|endofprompt|>"), vocabulary - len(marks()))
        return MarkedTokens(StandInWords(first), mark_ids({}, first))
    words = BpeWords(folder)
    known, first = _known(folder)
    tokens = MarkedTokens(words, mark_ids(known, first))
    if max(mark_ids(known, first).values()) >= vocabulary:
        raise CheckpointError(f"the marks of {folder} reach beyond the {vocabulary} ids of llm.pt")
    return tokens


def _known(folder: Path) -> tuple[dict[str, int], int]:
    """Marks that the tokenizer's own files have, and the first id behind all of theirs."""
    file = folder / "tokenizer_config.json"
    try:
        plain = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        added = json.loads(file.read_text(encoding="utf-8"))["added_tokens_decoder"]
        known = {token["content"]: int(number) for number, token in added.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"cannot read the added tokens of {file}: {error!r}") from error
    taken: Sequence[int] = (*plain.values(), *known.values())
    return known, max(taken) + 1
