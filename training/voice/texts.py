"""Collect the sentences that the voice is trained on: one sentence a line, shuffled by a seed.

Sources: usage examples and glosses of WordNet, State of the Union addresses, prose of the public
domain (plain text or XHTML), and the generators of `generated.py`. Sentences that share eight
words in a row with a text given by --exclude are dropped, so nothing that is measured is learnt.
"""

import argparse
import html
import random
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from generated import generated

MAX_WORDS = 70
OVERLAP_WORDS = 8
TITLES = "mr mrs ms dr st prof gen col capt lt sgt rev hon vs etc no vol jr sr"
ABBREVIATIONS = frozenset(TITLES.split())
SENTENCE_END = re.compile(r"(?<=[.!?])[\"”’')\]]*\s+(?=[\"“‘'(\[]?[A-Z0-9])")
SYNSET_GLOSS = re.compile(r"\| (.*)$")
QUOTED = re.compile(r'"([^"]+)"')


def words_of(text: str) -> list[str]:
    """Lower-case words without punctuation, for comparing sentences."""
    return re.sub(r"[^a-z0-9 ]+", "", text.lower().replace("-", " ")).split()


def split_sentences(paragraph: str) -> Iterator[str]:
    """Cut a paragraph after . ! ? before a capital, but not after a title or an initial."""
    start = 0
    for match in SENTENCE_END.finditer(paragraph):
        before = paragraph[start : match.start()].rstrip(".").rsplit(maxsplit=1)
        last = before[-1].lower() if before else ""
        if last in ABBREVIATIONS or len(last) == 1:
            continue
        yield paragraph[start : match.end()].strip()
        start = match.end()
    yield paragraph[start:].strip()


def clean(sentence: str) -> str | None:
    """The sentence with plain quotes and single spaces, or None if it is not everyday text."""
    text = unicodedata.normalize("NFC", sentence)
    text = text.translate(str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "–": "—"}))
    text = re.sub(r"--+|⸺|⸻", "—", text).replace("—", " — ").strip(" \"'_*—")
    text = re.sub(r"\s+", " ", text.replace('"', "").replace("_", ""))
    text = re.sub(r" +([,.;:!?])", r"\1", text)
    if (
        len(text) < 2
        or not re.search("[A-Za-z]", text)
        or re.search(r"[^\x20-\x7eéèêàâçñöüäôîï—£€°]", text)
    ):
        return None
    if len(text.split()) > MAX_WORDS or sum(c.isdigit() for c in text) > len(text) // 3:
        return None
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?" else text.rstrip(",;:") + "."


def wordnet_sentences(folder: Path, rng: random.Random, glosses: int) -> Iterator[str]:
    """Every usage example of two words or more, and a sample of the glosses."""
    found: list[str] = []
    for path in sorted(folder.glob("data.*")):
        for line in path.read_text("utf-8", "replace").splitlines():
            match = SYNSET_GLOSS.search(line)
            if line.startswith("  ") or match is None:
                continue
            yield from (q for q in QUOTED.findall(match[1]) if len(q.split()) >= 2)
            gloss = QUOTED.sub("", match[1]).split(";")[0]
            gloss = re.sub(r"\([^)]*\)", "", gloss).strip()
            if len(gloss.split()) >= 4:
                found.append(gloss)
    yield from rng.sample(found, min(glosses, len(found)))


def prose_sentences(paths: Iterable[Path]) -> Iterator[str]:
    """Sentences of plain-text or XHTML files; blank lines or <p> end a paragraph."""
    for path in paths:
        text = path.read_text("utf-8", "replace")
        if path.suffix in (".xhtml", ".html"):
            text = re.sub(r"(?s)<head.*?</head>|<a [^>]*noteref[^>]*>.*?</a>", "", text)
            text = re.sub(r"(?i)</(p|h\d|li|blockquote|td)>|<br ?/>", "\n\n", text)
            text = html.unescape(re.sub(r"<[^>]+>", "", text))
        for paragraph in re.split(r"\n\s*\n", text):
            yield from split_sentences(" ".join(paragraph.split()))


def joined(sentences: list[str], count: int, rng: random.Random) -> Iterator[str]:
    """Longer texts: two to six neighbours or strangers in a row, up to MAX_WORDS words."""
    for _ in range(count):
        target = rng.randint(20, MAX_WORDS)
        parts: list[str] = []
        while len(parts) < 6 and sum(len(p.split()) for p in parts) < target:
            parts.append(rng.choice(sentences))
        text = " ".join(parts)
        if len(text.split()) <= MAX_WORDS:
            yield text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wordnet", type=Path, required=True, help="folder with data.noun, ...")
    parser.add_argument("--prose", type=Path, nargs="+", required=True, help="files or folders")
    parser.add_argument("--lexicon", type=Path, required=True, help="one word a line")
    parser.add_argument("--exclude", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--glosses", type=int, default=30_000)
    parser.add_argument("--generated", type=int, default=36_000)
    parser.add_argument("--joined", type=int, default=12_000)
    parser.add_argument("--prose-limit", type=int, default=90_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)

    held_out: set[tuple[str, ...]] = set()
    whole: set[tuple[str, ...]] = set()
    for path in args.exclude:
        for line in path.read_text("utf-8").splitlines():
            for field in line.split("\t"):
                w = words_of(field)
                whole.add(tuple(w))
                held_out.update(zip(*(w[i:] for i in range(OVERLAP_WORDS)), strict=False))

    files = [
        f
        for p in args.prose
        for f in ([p] if p.is_file() else sorted(p.rglob("*.*html")) + sorted(p.rglob("*.txt")))
    ]
    prose = list(dict.fromkeys(prose_sentences(files)))
    prose = [s for s in prose if len(s.split()) <= MAX_WORDS]
    sources = list(wordnet_sentences(args.wordnet, rng, args.glosses))
    sources += rng.sample(prose, min(args.prose_limit, len(prose)))
    kept = list(dict.fromkeys(s for s in map(clean, sources) if s))
    kept += joined([s for s in kept if len(s.split()) >= 4], args.joined, rng)
    kept += generated(args.generated, args.lexicon.read_text("utf-8").split(), rng)

    def allowed(text: str) -> bool:
        w = words_of(text)
        runs = zip(*(w[i:] for i in range(OVERLAP_WORDS)), strict=False)
        return tuple(w) not in whole and not any(run in held_out for run in runs)

    result = [s for s in dict.fromkeys(kept) if allowed(s)]
    rng.shuffle(result)
    args.out.write_text("\n".join(result) + "\n", "utf-8")
    count = sum(len(s.split()) for s in result)
    print(f"{len(result)} sentences, {count} words, {len(kept) - len(result)} dropped")


if __name__ == "__main__":
    main()
