"""Draw the losses of a run: `curves.py FOLDER_WITH_LOGS OUT.png`."""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    codec = json.loads((args.logs / "codec_log.json").read_text())
    lm = json.loads((args.logs / "lm_log.json").read_text())
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    steps = [line["step"] for line in codec]
    left.plot(steps, [line["mel"] for line in codec], label="log-mel distance")
    fooled = [line.get("fooled", float("nan")) / 8 for line in codec]
    left.plot(steps, fooled, label="adversarial, mean of 8")
    left.set(title="codec", xlabel="update", ylim=(0, 1.2))
    left.legend()
    steps = [line["step"] for line in lm]
    for book in range(6):
        right.plot(steps, [line[f"code{book}"] for line in lm], lw=0.8, label=f"codebook {book}")
    held = [line for line in lm if "held_code0" in line]
    mean = [sum(line[f"held_code{k}"] for k in range(6)) / 6 for line in held]
    right.plot([line["step"] for line in held], mean, "k.", label="held out, mean")
    right.set(title="language model: cross-entropy, nats", xlabel="update", ylim=(0.8, 3))
    right.legend(fontsize=7)
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
