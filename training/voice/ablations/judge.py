"""Listen to what the variants said: `python -m ablations.judge FOLDER INPUT`, in the folder above.

FOLDER is what run.py left, INPUT what sentences.py wrote. Runs where voxserve and its extra `test`
are installed. What was heard is kept in FOLDER/heard.json, so a second call goes on from there; the
table goes to FOLDER/table.md.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from codec import CODES, SAMPLE_RATE, Decoder, from_codes
from train_lm import load

from ablations.cost import costs
from ablations.run import CODEC_OF
from ablations.variants import BASE, VARIANTS
from voxserve.bench.hearing import Listener, edits, opinion

FRAMES_A_SECOND = 20
DRAWS = 10_000
Audio = np.ndarray
Judged = dict[str, list]


@dataclass
class Row:
    """A line of the table: who speaks, its codes in `spoken.npz`, and its codec."""

    name: str
    keys: tuple[str, ...]
    codebooks: int = 0


def rows(takes: int) -> list[Row]:
    codecs = [
        Row(f"codec alone, {v.codebooks} codebooks", (f"{name}.{{}}_codec",), v.codebooks)
        for name, v in VARIANTS.items()
        if v.owns_codec
    ]
    said = [
        Row(name, tuple(f"{name}.{{}}{take}" for take in range(takes)), v.codebooks)
        for name, v in VARIANTS.items()
    ]
    return codecs + said


@torch.no_grad()
def sounds(folder: Path, row: Row, spoken: dict[str, np.ndarray]) -> list[list[Audio]]:
    """Of every take, the audio of every sentence."""
    decoder = Decoder(row.codebooks).eval()
    held = torch.load(folder / f"decoder-{CODEC_OF[row.codebooks]}.pt", map_location="cpu")
    decoder.load_state_dict(held)
    out = []
    for key in row.keys:
        codes, frames = (torch.from_numpy(spoken[key.format(x)]) for x in ("codes", "frames"))
        parts = codes.long().clamp(max=CODES - 1).split(frames.tolist())
        out.append([decoder(from_codes(one[None]))[0].clamp(-1, 1).numpy() for one in parts])
    return out


def read(folder: Path) -> list[Audio]:
    """The teacher's own speech, as render.py left it, in the sentences' order."""
    found: dict[int, Audio] = {}
    for path in sorted(folder.glob("w*.npz")):
        data = load(path)
        audio = np.split(data["audio"].astype(np.float32) / 32768, np.cumsum(data["frames"]) * 1200)
        found |= dict(zip(data["index"].tolist(), audio, strict=False))
    return [found[index] for index in sorted(found)]


def judge(takes: list[list[Audio]], texts: list[str], listener: Listener, every: int) -> Judged:
    """Of every sentence its errors, over all takes, and its words; of some the opinions."""
    errors, words, opinions = [0] * len(texts), [0] * len(texts), []
    for take in takes:
        for at, (audio, text) in enumerate(zip(take, texts, strict=True)):
            heard = listener.hear(audio, SAMPLE_RATE, text)
            errors[at] += edits(heard.meant, heard.heard)
            words[at] += len(heard.meant)
            if at % every == 0:
                opinions.append(opinion(audio, SAMPLE_RATE))
    return {"errors": errors, "words": words, "opinions": opinions}


def interval(one: Judged, base: Judged) -> tuple[float, float]:
    """95 % of the difference of the error rates in points, sentences drawn with replacement."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(one["words"]), size=(DRAWS, len(one["words"])))

    def rate(judged: Judged) -> np.ndarray:
        errors, words = np.array(judged["errors"]), np.array(judged["words"])
        return errors[drawn].sum(1) / words[drawn].sum(1)

    low, high = np.quantile(100 * (rate(one) - rate(base)), (0.025, 0.975))
    return float(low), float(high)


def table(judged: dict[str, Judged], lists: list[str], runs: dict) -> str:
    names = list(dict.fromkeys(lists))
    priced = costs()
    heads = ["", "parameters", "bit/s", *(f"WER {name}" for name in names)]
    heads += ["difference to base, 95 %", "DNSMOS", "held-out loss", "step"]
    lines = [heads, ["---"] * len(heads)]
    every = {row.name: row for row in rows(1)}
    for name, one in judged.items():
        rates = []
        for which in names:
            at = [i for i, other in enumerate(lists) if other == which]
            rate = sum(one["errors"][i] for i in at) / sum(one["words"][i] for i in at)
            rates.append(f"{100 * rate:.1f} %")
        line = [name, "", "", *rates, "", f"{np.mean(one['opinions']):.2f}", "", ""]
        if name in every:
            bits = FRAMES_A_SECOND * every[name].codebooks * np.log2(CODES)
            line[2] = f"{bits:.0f}"
        if name in VARIANTS:
            line[1] = f"{priced[name]['parameters_m']:.1f} M"
            line[-1] = f"{priced[name]['step_ms']:.1f} ms, × {priced[name]['ratio']:.2f}"
            held = [x for x in runs["losses"].get(name, []) if "held_code0" in x]
            if held:
                codes = [v for k, v in held[-1].items() if k.startswith("held_code")]
                line[-2] = f"{np.mean(codes):.2f} at {held[-1]['step']}"
            if name != BASE:
                low, high = interval(one, judged[BASE])
                line[3 + len(names)] = f"{low:+.1f} to {high:+.1f}"
        lines.append(line)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("input", type=Path)
    parser.add_argument("--teacher", type=Path, help="folder of render.py with its own speech")
    parser.add_argument("--takes", type=int, default=1)
    parser.add_argument("--every", type=int, default=4, help="sentences an opinion")
    parser.add_argument("--first", type=int, default=1_000_000, help="sentences of each list")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = json.loads((args.input / "spoken.json").read_text("utf-8"))
    count: dict[str, int] = {}
    keep = []
    for at, line in enumerate(lines):
        count[line["list"]] = count.get(line["list"], 0) + 1
        if count[line["list"]] <= args.first:
            keep.append(at)
    texts, lists = ([lines[at][key] for at in keep] for key in ("text", "list"))
    with np.load(args.folder / "spoken.npz") as held:
        spoken = {key: held[key] for key in held.files}
    cache, listener = args.folder / "heard.json", Listener()
    judged: dict[str, Judged] = json.loads(cache.read_text()) if cache.exists() else {}
    if args.teacher and "teacher" not in judged:
        audio = read(args.teacher)
        judged["teacher"] = judge([[audio[at] for at in keep]], texts, listener, args.every)
    for row in rows(args.takes):
        if row.name in judged or row.keys[0].format("codes") not in spoken:
            continue
        takes = [[take[at] for at in keep] for take in sounds(args.folder, row, spoken)]
        judged[row.name] = judge(takes, texts, listener, args.every)
        cache.write_text(json.dumps(judged))
        print(row.name, flush=True)
    made = table(judged, lists, json.loads((args.folder / "runs.json").read_text()))
    (args.folder / "table.md").write_text(made)
    print(made)


if __name__ == "__main__":
    main()
