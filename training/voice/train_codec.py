"""Train the codec on what is rendered so far, while rendering goes on.

The first --freeze seconds train all of it; then the encoder and so the codes are frozen and
written to `encoder.pt` (the LM starts from there), and the decoder trains on alone.
"""

import argparse
import copy
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from codec import FRAME_SAMPLES, Decoder, Encoder, quantise
from losses import Discriminators, MelLoss, generator_loss


class Audio:
    """All audio on the device as int16, filled from shards until `capacity` samples."""

    def __init__(self, folder: Path, capacity: int, device: str) -> None:
        self.folder, self.used, self.seen = folder, 0, set[str]()
        self.buffer = torch.empty(capacity, dtype=torch.int16, device=device)

    def refill(self, most: int) -> None:
        """Take in at most `most` new shards."""
        new = [
            p
            for p in sorted(self.folder.glob("w*.npz"), key=lambda p: p.name[5:])
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--freeze", type=float, default=240)
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
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    args.out.mkdir(parents=True, exist_ok=True)
    device = args.device
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    encoder, decoder = Encoder().to(device), Decoder().to(device)
    judge, mel = Discriminators().to(device), MelLoss().to(device)
    if args.resume:
        for model, name in ((encoder, "encoder"), (decoder, "decoder"), (judge, "judge")):
            model.load_state_dict(torch.load(args.resume / f"{name}.pt", map_location=device))
    average = copy.deepcopy(decoder).requires_grad_(False)
    fast = device.startswith("cuda")

    def optimiser_of(*models: nn.Module) -> torch.optim.AdamW:
        parameters = [p for m in models for p in m.parameters()]
        rate = torch.tensor(args.rate, device=device)
        return torch.optim.AdamW(
            parameters, rate, betas=(0.8, 0.99), fused=fast, capturable=fast and not args.eager
        )

    make, tell = optimiser_of(encoder, decoder), optimiser_of(judge)
    audio = Audio(args.data, int(args.hours * 3600 * 24000), device)
    while audio.used < 60 * args.rows * FRAME_SAMPLES:
        time.sleep(0.5)
        audio.refill(64)
    start, step, frozen, log = time.monotonic(), 0, False, []
    sums: dict[str, Tensor] = {}
    real = torch.empty(args.rows, args.frames * FRAME_SAMPLES, device=device)
    kind: tuple[bool, bool] | None = None
    while (gone := time.monotonic() - start) < args.seconds:
        share = gone / args.seconds
        for optimiser in (make, tell):
            for group in optimiser.param_groups:
                rate = args.rate * min(1, (step + 1) / 200) * max(0.02, 1 - share)
                group["lr"].fill_(rate)
        if not frozen and (args.resume or gone > args.freeze):
            frozen = True
            encoder.requires_grad_(False)
            save(encoder, args.out / "encoder.pt")
            encoder.load_state_dict(torch.load(args.out / "encoder.pt", map_location=device))
        adversarial = step >= args.warm_up
        real.copy_(audio.batch(args.rows, args.frames * FRAME_SAMPLES))

        def update(adversarial: bool = adversarial) -> dict[str, Tensor]:
            return train_step(
                encoder, decoder, judge, mel, make, tell, real, adversarial=adversarial
            )

        if args.eager or not fast:
            losses = update()
        elif kind != (adversarial, frozen):
            kind = (adversarial, frozen)
            graph, losses = capture(update, device)
        else:
            graph.replay()
        decay = min(0.999, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(decoder.parameters()), 1 - decay)
        for name, value in losses.items():
            sums[name] = sums.get(name, 0) + value.clone()
        step += 1
        if step % args.report == 0:
            audio.refill(4)
            line = {
                "step": step,
                "seconds": round(time.monotonic() - start, 1),
                "hours": round(audio.used / 86.4e6, 2),
                **{k: round(float(v) / args.report, 4) for k, v in sums.items()},
            }
            log.append(line)
            sums = {}
            (args.out / "codec_log.json").write_text(json.dumps(log))
            if step % (args.report * 5) == 0:
                print(json.dumps(line), flush=True)
        if step % 1000 == 0:
            save(average, args.out / "decoder.pt")
            save(judge, args.out / "judge.pt")
    if not frozen:
        save(encoder, args.out / "encoder.pt")
    save(average, args.out / "decoder.pt")
    save(judge, args.out / "judge.pt")
    print("steps", step, flush=True)


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


def train_step(
    encoder: nn.Module,
    decoder: nn.Module,
    judge: nn.Module,
    mel: nn.Module,
    make: torch.optim.Optimizer,
    tell: torch.optim.Optimizer,
    real: Tensor,
    *,
    adversarial: bool,
) -> dict[str, Tensor]:
    """One update of the codec, and of the discriminators once they take part."""
    kind = real.device.type
    with torch.autocast(kind, torch.bfloat16, cache_enabled=False):
        fake = decoder(quantise(encoder(real)))
    distance = mel(fake, real)
    losses = {"mel": distance.detach()}
    loss = 15 * distance
    if adversarial:
        with torch.autocast(kind, torch.bfloat16, cache_enabled=False):
            both = [
                (o.chunk(2), [f.chunk(2) for f in fs])
                for o, fs in judge(torch.cat([real, fake.detach()]))
            ]
            told = sum(
                ((1 - r.float()) ** 2).mean() + (f.float() ** 2).mean() for (r, f), _ in both
            )
        tell.zero_grad(set_to_none=True)
        told.backward()
        torch.nn.utils.clip_grad_norm_(judge.parameters(), 10.0)
        tell.step()
        judge.requires_grad_(False)
        with torch.autocast(kind, torch.bfloat16, cache_enabled=False):
            fooled, matched = generator_loss(
                [[f[0].detach() for f in fs] for _, fs in both], judge(fake)
            )
        judge.requires_grad_(True)
        loss = loss + fooled + 2 * matched
        losses |= {"told": told.detach(), "fooled": fooled.detach(), "matched": matched.detach()}
    make.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(make.param_groups[0]["params"], 10.0)
    make.step()
    return losses


def save(model: nn.Module, path: Path) -> None:
    temporary = path.with_suffix(".tmp")
    torch.save({k: v.half() for k, v in model.state_dict().items()}, temporary)
    temporary.replace(path)


if __name__ == "__main__":
    main()
