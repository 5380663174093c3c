"""Mini with small random weights and its state, driven stage by stage as the engine does."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from voxserve.checkpoints import dummy_weights
from voxserve.models.mini import plugin
from voxserve.models.mini.config import POOL, CodecSizes, LmSizes, MiniConfig
from voxserve.models.mini.host import MiniHost
from voxserve.models.mini.stages import MiniModel
from voxserve.nn.blank import blank
from voxserve.plugin import Checkpoint
from voxserve.requests import Int32Array

SLOTS = 4
LM = LmSizes(
    symbols=178,
    text_width=16,
    text_layers=2,
    text_heads=2,
    text_inner=24,
    width=24,
    layers=2,
    heads=2,
    inner=32,
    layout_blocks=1,
    layout_kernel=7,
)
CODEC = CodecSizes(
    codebooks=6,
    dims_each=4,
    levels=5,
    width=16,
    kernel=7,
    slow_blocks=1,
    fast_blocks=2,
    up=4,
    hop=30,
)


def bundled() -> Checkpoint:
    import json

    assert plugin.bundled is not None
    config = json.loads((plugin.bundled / "config.json").read_text("utf-8"))
    return Checkpoint("mini", plugin.bundled, config)


@cache
def host() -> MiniHost:
    return MiniHost(bundled())


@cache
def small(dtype: str = "float64") -> MiniModel:
    """Small random weights, with phonemes of a few units each."""
    torch.set_num_threads(1)
    config = replace(MiniConfig.read(bundled().config), lm=LM, codec=CODEC, max_phonemes=1024)
    with blank():
        model = MiniModel(config)
    dummy_weights(model, device="cpu", dtype=getattr(torch, dtype), seed=3, moments=_moments)
    model.lm.get_parameter("length.2.bias").data.fill_(0.8)
    return model


def _moments(name: str, shape: tuple[int, ...]) -> tuple[float, float] | None:
    return (0.3, 0.1) if name.endswith(".scale") else None


class Rows:
    """State of SLOTS rows. Pages are dealt out shuffled, so that no row has its own in order."""

    def __init__(self, model: MiniModel, dtype: str = "float64") -> None:
        self.model, self.config = model, model.config
        per_row = model.config.pages()
        order = np.random.default_rng(0).permutation(SLOTS * per_row)
        self.pages = torch.from_numpy(order.reshape(SLOTS, per_row))
        counts = {"row": SLOTS, "page": SLOTS * per_row}
        self.state = {
            tensor.name: torch.full(
                (counts[tensor.scope] + 1, *tensor.shape),
                7,  # what an earlier request left behind
                dtype=getattr(torch, dtype if tensor.dtype == "model" else tensor.dtype),
            )
            for tensor in model.config.state()
        }

    def speak(self, rows: Mapping[int, Int32Array], *, temperature: float = 1.0) -> list[Tensor]:
        """Codes [steps, K] of each slot's prompt rows, to the end of its longest."""
        slots = torch.tensor(list(rows))
        longest = max(len(r) for r in rows.values())
        padded = np.zeros((len(rows), longest, 1), np.int64)
        for at, one in zip(padded, rows.values(), strict=True):
            at[: len(one)] = one
        sampling = torch.tensor([[temperature, -1, 1, 1, 0]] * len(rows))
        io = {
            "slots": slots,
            "lengths": torch.tensor([len(r) for r in rows.values()]),
            "rows": torch.from_numpy(padded),
            "sampling": sampling,
            "seeds": slots + 40,
            f"pages_{POOL}": self.pages[slots],
        }
        steps = [self.model.prefill(io, self.state)["codes"]]
        frames = self.state["lm.frames"][slots]
        for step in range(1, int(frames.max()) + self.config.lag + 1):
            now = torch.full_like(slots, step)
            steps.append(self.model.decode({"slots": slots, "steps": now}, self.state)["codes"])
        codes = torch.stack(steps, dim=1)
        return [codes[n, : f + self.config.lag + 1] for n, f in enumerate(frames)]

    def decode(
        self, codes: Mapping[int, Tensor], first: int, count: int, room: int | None = None
    ) -> Tensor:
        """Audio [n, count * samples] of frames first … first + count - 1 of codes [F, K]."""
        room = count if room is None else room
        slots = torch.tensor(list(codes))
        chunk = torch.zeros(len(codes), room, self.config.codec.codebooks, dtype=torch.int64)
        chunk[:, :count] = torch.stack([c[first : first + count] for c in codes.values()])
        io = {
            "slots": slots,
            "codes": chunk,
            "lengths": torch.full_like(slots, count),
            "fresh": torch.full_like(slots, first == 0, dtype=torch.bool),
        }
        samples = self.config.codec.up * self.config.codec.hop
        return self.model.codec(io, self.state)["audio"][:, : count * samples]


def phonemes(seed: int, *lengths: int) -> Int32Array:
    """Prompt rows of random blocks."""
    rng = np.random.default_rng(seed)
    blocks = [[0, *rng.integers(1, 178, n), 0] for n in lengths]
    if len(blocks) > 1:
        blocks = [b + [-1] * (256 - len(b)) for b in blocks]
    return np.array([i for b in blocks for i in b], np.int32).reshape(-1, 1)


def cuts(total: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """(first, count) of chunks of those sizes, the last size repeated."""
    out, at = [], 0
    for number in range(total):
        size = min(sizes[min(number, len(sizes) - 1)], total - at)
        if size:
            out.append((at, size))
        at += size
    return out
