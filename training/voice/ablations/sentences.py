"""Which sentences the ablations learn from and speak; runs where voxserve is installed.

Writes `texts.tsv.gz`, as `phonemes.py` does, with sentences whose letters can be laid beside their
phonemes; `spoken.tsv.gz`, the same of what is to be spoken; `spoken.json`, that with its lists.
"""

import argparse
import gzip
import json
import random
from pathlib import Path

import voxserve.models.mini
from ablations.characters import EDGE, align, symbols
from voxserve.models.mini.normalise import normalise
from voxserve.models.mini.reading import Reader
from voxserve.text.clean import clean

CHECKPOINT = Path(voxserve.models.mini.__file__).parent / "checkpoint"


def learnt(file: Path, count: int, seed: int) -> list[str]:
    """At most `count` lines of `phonemes.py`'s file, their texts in words, in random order."""
    with gzip.open(file, "rt", encoding="utf-8") as read:
        lines = read.read().splitlines()
    random.Random(seed).shuffle(lines)
    kept: list[str] = []
    for line in lines:
        index, phonemes, text = line.split("\t")
        text = normalise(text)
        if align(phonemes, text) is not None:
            kept.append(f"{index}\t{phonemes}\t{text}")
        if len(kept) == count:
            break
    print(f"{len(kept)} sentences whose letters lie beside their phonemes")
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phonemes", type=Path, help="of phonemes.py")
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--speak", action="append", required=True, metavar="NAME=FILE", help="one sentence a line"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    reader, spoken, rows = Reader(CHECKPOINT), [], []
    known = json.loads((CHECKPOINT / "config.json").read_text("utf-8"))["phonemes"]
    for pair in args.speak:
        name, file = pair.split("=")
        for line in Path(file).read_text("utf-8").splitlines():
            text = line.split("\t")[-1]
            said = "".join(c for c in reader.read(clean(text)) if c in known)
            words = normalise(clean(text))
            rows.append(f"{len(rows)}\t{said}\t{words}")
            ids = [EDGE, *(known[c] for c in said), EDGE]
            spoken.append({"list": name, "text": text, "ids": ids, "symbols": symbols(words)})
    (args.out / "spoken.json").write_text(json.dumps(spoken, ensure_ascii=False), "utf-8")
    texts = learnt(args.phonemes, args.count, args.seed)
    for file, lines in (("texts", texts), ("spoken", rows)):
        with gzip.open(args.out / f"{file}.tsv.gz", "wt", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
