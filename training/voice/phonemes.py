"""Sentences to phonemes with the teacher's own front end: `id<TAB>phonemes<TAB>text`, gzip."""

import argparse
import gzip
from pathlib import Path

from hibari import Hibari

MAX_PHONEMES = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sentences", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=int, default=1_000_000)
    args = parser.parse_args()
    g2p, vocab = Hibari().g2p, Hibari().vocab
    kept = 0
    with gzip.open(args.out, "wt", encoding="utf-8") as out:
        for index, text in enumerate(args.sentences.read_text("utf-8").splitlines()[: args.limit]):
            phonemes = "".join(c for c in g2p(text) if c in vocab)
            if 1 <= len(phonemes) <= MAX_PHONEMES:
                out.write(f"{index}\t{phonemes}\t{text}\n")
                kept += 1
    print(f"{kept} sentences")


if __name__ == "__main__":
    main()
