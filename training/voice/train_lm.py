"""Train the LM on the codes of the rendered speech: waits for `encoder.pt`, encodes as it goes."""

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from codec import FRAME_SAMPLES, Encoder, to_codes
from journal import Journal
from lm import PAD, VoiceLM, lay_out
from pace import Pace, add_options
from torch import Tensor
from train_codec import save

Respell = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""A sentence's number, units and natural units a phoneme to symbols, units and natural units."""


@dataclass
class Corpus:
    """One tensor a sentence, on the host. respell: what to read in place of the phonemes."""

    device: str
    respell: Respell | None = None
    ids: list[Tensor] = field(default_factory=list)
    units: list[Tensor] = field(default_factory=list)
    natural: list[Tensor] = field(default_factory=list)
    codes: list[Tensor] = field(default_factory=list)
    shards: set[str] = field(default_factory=set)

    @property
    def frames(self) -> int:
        return sum(len(c) for c in self.codes)

    def add(self, name: str, data: dict[str, np.ndarray], encoder: Encoder) -> None:
        """Encode one shard."""
        audio = torch.from_numpy(data["audio"]).to(self.device).float() / 32768
        frames, phonemes = data["frames"], data["phonemes"]
        codes = encode(encoder, audio, torch.from_numpy(frames)).cpu()
        self.codes += list(codes.split(frames.tolist()))
        ids, units, natural = (
            torch.from_numpy(data[key].astype(np.float32)).to(kind).split(phonemes.tolist())
            for key, kind in (
                ("ids", torch.int64),
                ("units", torch.int64),
                ("natural", torch.float32),
            )
        )
        if self.respell is not None:
            spelt = map(self.respell, data["index"].tolist(), units, natural)
            ids, units, natural = zip(*spelt, strict=True)
        self.ids += ids
        self.units += units
        self.natural += natural
        self.shards.add(name)


def load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as data:
        arrays = {k: data[k] for k in data.files}
    return arrays | {"audio": np.fromfile(path.with_suffix(".pcm"), np.int16)}


@torch.no_grad()
def encode(encoder: Encoder, audio: Tensor, frames: Tensor, rows: int = 64) -> Tensor:
    """Codes [sum F, K] int16 of sentences that lie one after another in `audio`."""
    order = frames.argsort().tolist()
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), frames.long().cumsum(0)])
    out = audio.new_empty(int(frames.sum()), encoder.codebooks, dtype=torch.int16)
    pieces = audio.view(-1, FRAME_SAMPLES)
    for at in range(0, len(order), rows):
        group = order[at : at + rows]
        longest = int(frames[group[-1]])
        batch = audio.new_zeros(len(group), longest, FRAME_SAMPLES)
        for i, g in enumerate(group):
            batch[i, : frames[g]] = pieces[starts[g] : starts[g + 1]]
        codes = to_codes(encoder(batch.flatten(1))).to(torch.int16)
        for i, g in enumerate(group):
            out[starts[g] : starts[g + 1]] = codes[i, : frames[g]]
    return out


def batches(corpus: Corpus, budget: int, rng: random.Random) -> list[list[int]]:
    """Sentences of like length together, at most `budget` frames a batch, in random order."""
    order = sorted(range(len(corpus.codes)), key=lambda i: len(corpus.codes[i]) + rng.random() * 8)
    out: list[list[int]] = [[]]
    for i in order:
        if (len(out[-1]) + 1) * len(corpus.codes[i]) > budget:
            out.append([])
        out[-1].append(i)
    rng.shuffle(out)
    return out


def hide_history(previous: Tensor) -> Tensor:
    """Spoil what the decoder reads back, so that its own slips do not throw it off course."""
    rows, steps, books = previous.shape
    shape = (rows, steps, books)
    rate = torch.rand(rows, 1, 1, device=previous.device) * 0.25
    gone = torch.rand(shape, device=previous.device) < rate
    gone |= torch.rand(rows, steps, 1, device=previous.device) < rate * 0.5
    gone |= torch.rand(rows, 1, 1, device=previous.device) < 0.05
    other = previous.flatten(0, 1)[torch.randperm(rows * steps, device=previous.device)].view(shape)
    swap = torch.rand(shape, device=previous.device) < 0.5
    return torch.where(gone & (previous != PAD), torch.where(swap, other, PAD), previous)


def loss_of(model: VoiceLM, corpus: Corpus, rows: list[int]) -> dict[str, Tensor]:
    """Cross-entropy per codebook and the L1 of log durations of one batch."""

    def pad(parts: list[Tensor], value: int = 0) -> Tensor:
        chosen = [parts[i] for i in rows]
        whole = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=value)
        return whole.to(corpus.device, non_blocking=True)

    ids, units, natural = pad(corpus.ids), pad(corpus.units), pad(corpus.natural)
    codes = pad(corpus.codes, PAD).long()
    lengths = torch.tensor([len(corpus.ids[i]) for i in rows], device=ids.device)
    inside = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    text, guess = model.read(ids, inside)
    length = (
        (guess.clamp(min=0.5).log() - natural.clamp(min=0.5).log()).abs() * inside
    ).sum() / inside.sum()
    told = model.condition(text, lay_out(units, codes.shape[1]), codes.shape[1])
    each = model.losses(codes, told, hide_history if model.training else lambda history: history)
    return {"length": length, **{f"code{k}": e for k, e in enumerate(each)}}


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--budget", type=int, default=40_000, help="frames a step")
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--warm-up", type=int, default=300)
    parser.add_argument("--wait-shards", type=int, default=8)
    parser.add_argument("--intake", type=int, default=64, help="new shards an epoch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=int, default=50)
    parser.add_argument("--finished", action="store_true", help="wait until all is rendered")
    parser.add_argument("--resume", type=Path, help="weights of an earlier run")
    add_options(parser)
    return parser.parse_args(given)


class Run:
    """Model, optimiser and a running average of the weights."""

    def __init__(self, args: argparse.Namespace, make: Callable[[], VoiceLM]) -> None:
        self.args, self.device, self.make = args, args.device, make
        self.model = make().to(args.device)
        if args.resume:
            self.model.load_state_dict(torch.load(args.resume, map_location=args.device))
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        rest = [p for p in self.model.parameters() if p.dim() <= 1]
        self.optimiser = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}],
            args.rate,
            betas=(0.9, 0.98),
            fused=args.device.startswith("cuda"),
        )
        self.average = {k: v.detach().clone() for k, v in self.model.state_dict().items()}

    def update(self, step: int, share: float, corpus: Corpus, rows: list[int]) -> dict[str, Tensor]:
        """One update; share: how much of the time is over. Returns the losses."""
        falling = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share))
        for group in self.optimiser.param_groups:
            group["lr"] = self.args.rate * min(1, (step + 1) / self.args.warm_up) * falling
        with torch.autocast(self.device.split(":")[0], torch.bfloat16):
            losses = loss_of(self.model, corpus, rows)
        codes = [value for name, value in losses.items() if name != "length"]
        loss = sum(codes) / len(codes) + losses["length"]
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        keep = min(0.998, (1 + step) / (10 + step))
        with torch.no_grad():
            new = list(self.model.state_dict().values())
            torch._foreach_lerp_(list(self.average.values()), new, 1 - keep)
        return losses

    def save(self) -> VoiceLM:
        """Write the running average, and return it."""
        keep = self.make()
        keep.load_state_dict(self.average)
        save(keep, self.args.out / "lm.pt")
        return keep


def take_in(folder: Path, corpus: Corpus, held: Corpus, encoder: Encoder, most: int) -> None:
    """Encode at most `most` new shards; the first of all is held out."""
    paths = sorted(folder.glob("w*.npz"), key=lambda p: (p.name[5:], p.name))
    new = [p for p in paths if p.name not in corpus.shards | held.shards][:most]
    with ThreadPoolExecutor(6) as pool:
        for at in range(0, len(new), 24):
            group = new[at : at + 24]
            for path, data in zip(group, pool.map(load, group), strict=True):
                (corpus if held.shards else held).add(path.name, data, encoder)


def is_ready(args: argparse.Namespace) -> bool:
    if not (args.out / "encoder.pt").exists():
        return False
    if args.finished:
        return (args.data / "finished").exists()
    return len(list(args.data.glob("w*.npz"))) >= args.wait_shards


def main(
    given: Sequence[str] | None = None,
    make: Callable[[], VoiceLM] = VoiceLM,
    respell: Respell | None = None,
) -> VoiceLM:
    """given: the command line; make: the model; respell: see `Corpus`. Returns what was saved."""
    args = arguments(given)
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    # cuDNN's attention plans anew for every shape, and every batch is one.
    torch.backends.cuda.enable_cudnn_sdp(False)
    rng = random.Random(args.seed)
    while not is_ready(args):
        time.sleep(0.5)
    journal, run = Journal(args.out / "lm_log.json", args.report), Run(args, make)
    encoder = Encoder(run.model.codebooks).to(args.device).eval()
    encoder.load_state_dict(torch.load(args.out / "encoder.pt", map_location=args.device))
    held, corpus = Corpus(args.device, respell), Corpus(args.device, respell)
    queue: list[list[int]] = []
    pace = Pace(args, journal, args.warm_up + args.report, args.warm_up + 3 * args.report)
    while (share := pace.share()) < 1:
        if not queue:
            take_in(args.data, corpus, held, encoder, args.intake)
            queue = batches(corpus, args.budget, rng)
            hours = corpus.frames / 72_000
            print(f"{journal.seconds:.0f} s: {hours:.1f} hours, {len(queue)} batches", flush=True)
        if journal.add(run.update(journal.step, share, corpus, queue.pop())):
            often = journal.step % (10 * args.report) == 0
            journal.line(**(evaluate(run.model, held) if often else {}))
        if journal.step % 1000 == 0:
            run.save()
    kept = run.save()
    print("steps", journal.step, json.dumps(evaluate(run.model, held)), flush=True)
    return kept


@torch.no_grad()
def evaluate(model: VoiceLM, held: Corpus) -> dict[str, float]:
    model.eval()
    rows = list(range(0, len(held.codes), max(1, len(held.codes) // 128)))
    losses = loss_of(model, held, rows)
    model.train()
    return {f"held_{k}": round(float(v), 4) for k, v in losses.items()}


if __name__ == "__main__":
    main()
