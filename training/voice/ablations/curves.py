"""Draw the losses of the variants: `python -m ablations.curves RUNS.JSON OUT.PNG`."""

import argparse
import json
from pathlib import Path

import matplotlib

from ablations.run import CODECS
from ablations.variants import BASE, VARIANTS

matplotlib.use("Agg")
from matplotlib import pyplot


def mean(line: dict[str, float], prefix: str) -> float:
    """Of all codebooks, nats."""
    values = [value for key, value in line.items() if key.startswith(f"{prefix}code")]
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    losses = json.loads(args.runs.read_text())["losses"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for name in CODECS:
        lines = losses[f"codec-{name}"]
        steps = [line["step"] for line in lines]
        left.plot(steps, [line["mel"] for line in lines], label=f"{CODECS[name]} codebooks")
    left.set(title="codecs: log-mel distance", xlabel="update", ylim=(0.3, 0.8))
    left.legend()
    # Losses of other codebooks are of other codes, and say nothing beside these.
    same = [name for name, v in VARIANTS.items() if v.codebooks == VARIANTS[BASE].codebooks]
    for name in same:
        lines = losses[name]
        (drawn,) = right.plot([x["step"] for x in lines], [mean(x, "") for x in lines], label=name)
        held = [x for x in lines if "held_code0" in x]
        marks = [x["step"] for x in held], [mean(x, "held_") for x in held]
        right.plot(*marks, "o", color=drawn.get_color())
    title = "language models, six codebooks: cross-entropy, nats"
    right.set(title=title, xlabel="update (dots: held out)", ylim=(0.9, 3))
    right.legend()
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
