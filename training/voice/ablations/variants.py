"""The variants of the language model, and the command that trains one and has it speak.

`python -m ablations.variants NAME INPUT SPOKEN -- ARGUMENTS OF train_lm`, from the folder above.
What it says is left in `spoken.npz`: the codes of all sentences one after another, and the frames
of each; with the codec's own codes of the teacher's speech where the variant has its own codec.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import train_lm
from codec import CODEBOOKS, Encoder
from lm import VoiceLM, speak

from ablations.characters import Spelling, whole_units
from ablations.depth import DepthLM

TAKES = 3


@dataclass(frozen=True)
class Variant:
    """codebooks: of the codec too. characters: reads letters. depth: has a depth transformer."""

    codebooks: int = CODEBOOKS
    characters: bool = False
    depth: bool = False

    def make(self) -> VoiceLM:
        return (DepthLM if self.depth else VoiceLM)(codebooks=self.codebooks)

    @property
    def owns_codec(self) -> bool:
        return not (self.characters or self.depth)


BASE = "base"
VARIANTS = {
    BASE: Variant(),
    "characters": Variant(characters=True),
    "depth": Variant(depth=True),
    "books4": Variant(4),
    "books8": Variant(8),
}


@torch.no_grad()
def say(model: VoiceLM, sentences: list[list[int]], *, characters: bool) -> list[np.ndarray]:
    """Codes [F, K] int16 of each sentence, given as symbols."""
    device = next(model.parameters()).device
    parts = [torch.tensor(one) for one in sentences]
    ids = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).to(device)
    lengths = torch.tensor([len(one) for one in sentences], device=device)
    inside = torch.arange(ids.shape[1], device=device) < lengths[:, None]
    units = whole_units(model.read(ids, inside)[1] * inside) if characters else None
    codes, frames = speak(model, ids, inside, units=units)
    whole = codes.to(torch.int16).cpu().numpy()
    return [one[:count] for one, count in zip(whole, frames.tolist(), strict=True)]


def encoded(encoder: Encoder, spoken: Path) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the teacher's speech in the folder `spoken`, and frames, in the sentences' order."""
    codes, index, frames = [], [], []
    for path in sorted(spoken.glob("w*.npz")):
        data = train_lm.load(path)
        audio = torch.from_numpy(data["audio"]).to(next(encoder.parameters()).device)
        counts = torch.from_numpy(data["frames"])
        made = train_lm.encode(encoder, audio.float() / 32768, counts).cpu().numpy()
        codes += np.split(made, np.cumsum(data["frames"])[:-1])
        index += data["index"].tolist()
        frames += data["frames"].tolist()
    order = np.argsort(index)
    return np.concatenate([codes[i] for i in order]), np.array(frames)[order]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=VARIANTS)
    parser.add_argument("input", type=Path, help="folder of sentences.py")
    parser.add_argument(
        "spoken", type=Path, help="folder of the teacher's reading of spoken.tsv.gz"
    )
    parser.add_argument("given", nargs="+", help="arguments of train_lm, after --")
    args = parser.parse_args()
    variant = VARIANTS[args.name]
    respell = Spelling(args.input / "texts.tsv.gz") if variant.characters else None
    model = train_lm.main(args.given, variant.make, respell)
    told = train_lm.arguments(args.given)
    model = model.to(told.device).eval()
    lines = json.loads((args.input / "spoken.json").read_text("utf-8"))
    sentences = [one["symbols" if variant.characters else "ids"] for one in lines]
    out: dict[str, np.ndarray] = {}
    for take in range(TAKES):
        torch.manual_seed(take)
        said = say(model, sentences, characters=variant.characters)
        out[f"codes{take}"] = np.concatenate(said)
        out[f"frames{take}"] = np.array([len(one) for one in said])
    if variant.owns_codec:
        encoder = Encoder(variant.codebooks).to(told.device).eval()
        held = torch.load(told.out / "encoder.pt", map_location=told.device)
        encoder.load_state_dict(held)
        out["codes_codec"], out["frames_codec"] = encoded(encoder, args.spoken)
    np.savez(told.out / "spoken.npz", **out)


if __name__ == "__main__":
    main()
