"""Train the codec on what is rendered so far, while rendering goes on.

The first --freeze seconds train all of it; then the encoder and so the codes are frozen and
written to `encoder.pt` (the LM starts from there), and the decoder trains on alone.
"""

import argparse
import copy
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from codec import CODEBOOKS, FRAME_SAMPLES, Decoder, Encoder, quantise
from journal import Journal
from losses import Discriminators, MelLoss, discriminator_loss, generator_loss
from pace import Pace, add_options
from torch import Tensor, nn


class Audio:
    """All audio on the device as int16, filled from shards until `capacity` samples."""

    def __init__(self, folder: Path, capacity: int, device: str) -> None:
        self.folder, self.used, self.seen = folder, 0, set[str]()
        self.buffer = torch.empty(capacity, dtype=torch.int16, device=device)

    def refill(self, most: int) -> None:
        """Take in at most `most` new shards."""
        new = [
            p
            for p in sorted(self.folder.glob("w*.npz"), key=lambda p: (p.name[5:], p.name))
            if p.name not in self.seen
        ]
        for path in new[:most]:
            audio = torch.from_numpy(np.fromfile(path.with_suffix(".pcm"), np.int16))
            if self.used + len(audio) > len(self.buffer):
                return
            self.buffer[self.used : self.used + len(audio)].copy_(audio)
            self.used += len(audio)
            self.seen.add(path.name)

    def batch(self, rows: int, samples: int) -> Tensor:
        start = torch.randint(self.used - samples, (rows, 1), device=self.buffer.device)
        return self.buffer[start + torch.arange(samples, device=self.buffer.device)].float() / 32768


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--freeze", type=float, default=240)
    parser.add_argument("--codebooks", type=int, default=CODEBOOKS)
    parser.add_argument("--warm-up", type=int, default=600, help="steps without discriminators")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--frames", type=int, default=25)
    parser.add_argument("--hours", type=float, default=50, help="audio held on the device")
    parser.add_argument("--rate", type=float, default=4e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=int, default=50)
    parser.add_argument(
        "--resume", type=Path, help="folder of an earlier run: its codes stay, its decoder goes on"
    )
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
    add_options(parser)
    return parser.parse_args()


class Run:
    """Models, optimisers and a running average of the decoder's weights."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, device = args, args.device
        self.encoder = Encoder(args.codebooks).to(device)
        self.decoder = Decoder(args.codebooks).to(device)
        self.judge, self.mel = Discriminators().to(device), MelLoss().to(device)
        if args.resume:
            for name in ("encoder", "decoder", "judge"):
                held = torch.load(args.resume / f"{name}.pt", map_location=device)
                getattr(self, name).load_state_dict(held)
        self.average = copy.deepcopy(self.decoder).requires_grad_(False)
        self.make = self._optimiser(self.encoder, self.decoder)
        self.tell = self._optimiser(self.judge)
        self.real = torch.empty(args.rows, args.frames * FRAME_SAMPLES, device=device)
        self.frozen = False
        self._graphed: tuple[bool, bool] | None = None

    def _optimiser(self, *models: nn.Module) -> torch.optim.AdamW:
        parameters = [p for m in models for p in m.parameters()]
        rate = torch.tensor(self.args.rate, device=self.args.device)
        fast = self.args.device.startswith("cuda")
        graphed = fast and not self.args.eager
        return torch.optim.AdamW(
            parameters, rate, betas=(0.8, 0.99), fused=fast, capturable=graphed
        )

    def freeze(self) -> None:
        """From now on the codes stay what they are: half precision, as the LM will read them."""
        self.frozen = True
        self.encoder.requires_grad_(False)
        path = self.args.out / "encoder.pt"
        save(self.encoder, path)
        self.encoder.load_state_dict(torch.load(path, map_location=self.args.device))

    def update(self, step: int, share: float) -> dict[str, Tensor]:
        """One update on `real`; share: how much of the time is over. Returns the losses."""
        rate = self.args.rate * min(1, (step + 1) / 200) * max(0.02, 1 - share)
        for optimiser in (self.make, self.tell):
            for group in optimiser.param_groups:
                group["lr"].fill_(rate)
        adversarial = step >= self.args.warm_up
        if self.args.eager or not self.args.device.startswith("cuda"):
            self.losses = train_step(self, adversarial=adversarial)
        elif self._graphed != (adversarial, self.frozen):
            self._graphed = (adversarial, self.frozen)
            self._graph, self.losses = capture(
                lambda: train_step(self, adversarial=adversarial), self.args.device
            )
        else:
            self._graph.replay()
        decay = min(0.999, (1 + step) / (10 + step))
        with torch.no_grad():
            mean, new = list(self.average.parameters()), list(self.decoder.parameters())
            torch._foreach_lerp_(mean, new, 1 - decay)
        return self.losses

    def save(self) -> None:
        save(self.average, self.args.out / "decoder.pt")
        save(self.judge, self.args.out / "judge.pt")


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    args.out.mkdir(parents=True, exist_ok=True)
    if args.device.startswith("cuda"):
        torch.cuda.set_device(args.device)
    run = Run(args)
    audio = Audio(args.data, int(args.hours * 3600 * 24000), args.device)
    while audio.used < 60 * args.rows * args.frames * FRAME_SAMPLES // 25:
        time.sleep(0.5)
        audio.refill(64)
    journal = Journal(args.out / "codec_log.json", args.report)
    measured = args.warm_up + args.report
    pace = Pace(args, journal, measured, measured + 2 * args.report)
    while (share := pace.share()) < 1:
        if not run.frozen and (args.resume or share > args.freeze / args.seconds):
            run.freeze()
        run.real.copy_(audio.batch(args.rows, args.frames * FRAME_SAMPLES))
        losses = run.update(journal.step, share)
        if journal.add(losses):
            audio.refill(4)
            journal.line(hours=round(audio.used / 86.4e6, 2))
        if journal.step % 1000 == 0:
            run.save()
    if not run.frozen:
        run.freeze()
    run.save()
    print("steps", journal.step, flush=True)


def capture(
    update: Callable[[], dict[str, Tensor]], device: str
) -> tuple[torch.cuda.CUDAGraph, dict[str, Tensor]]:
    """Record one update as a CUDA graph: its thousands of small kernels are bound by launches."""
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):
            update()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        losses = update()
    return graph, losses


def train_step(run: Run, *, adversarial: bool) -> dict[str, Tensor]:
    """One update of the codec, and of the discriminators once they take part."""
    real, judge, kind = run.real, run.judge, run.real.device.type
    with torch.autocast(kind, torch.bfloat16, cache_enabled=False):
        fake = run.decoder(quantise(run.encoder(real)))
    distance = run.mel(fake, real)
    losses = {"mel": distance.detach()}
    loss = 15 * distance
    if adversarial:
        with torch.autocast(kind, torch.bfloat16, cache_enabled=False):
            told, features = discriminator_loss(judge, real, fake.detach())
        run.tell.zero_grad(set_to_none=True)
        told.backward()
        torch.nn.utils.clip_grad_norm_(judge.parameters(), 10.0)
        run.tell.step()
        judge.requires_grad_(False)
        with torch.autocast(kind, torch.bfloat16, cache_enabled=False):
            fooled, matched = generator_loss(features, judge(fake))
        judge.requires_grad_(True)
        loss = loss + fooled + 2 * matched
        losses |= {"told": told.detach(), "fooled": fooled.detach(), "matched": matched.detach()}
    run.make.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(run.make.param_groups[0]["params"], 10.0)
    run.make.step()
    return losses


def save(model: nn.Module, path: Path) -> None:
    temporary = path.with_suffix(".tmp")
    torch.save({k: v.half() for k, v in model.state_dict().items()}, temporary)
    temporary.replace(path)


if __name__ == "__main__":
    main()
