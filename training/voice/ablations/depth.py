"""A depth transformer in place of the delay pattern: all codes of a frame in one step.

The decoder runs over whole frames; a small transformer then reads its state and emits the frame's
codes one after another, each knowing those before it (RQ-Transformer, Lee et al. 2022). One decoder
layer fewer pays for it.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from codec import CODEBOOKS, CODES
from lm import LAYERS, PAD, WIDTH, Layer, VoiceLM, cross_entropy, sample
from torch import Tensor, nn

DEPTH_WIDTH, DEPTH_LAYERS, DEPTH_HEADS, DEPTH_FF = 256, 2, 4, 704
MOST_ROWS = 30_000
"""Frames at a time: attention kernels launch a block a row, and 65,535 is their limit."""


class DepthLM(VoiceLM):
    def __init__(self, dropout: float = 0.1, codebooks: int = CODEBOOKS) -> None:
        super().__init__(dropout, codebooks, LAYERS - 1)
        self.enter = nn.Linear(WIDTH, DEPTH_WIDTH)
        self.places = nn.Embedding(codebooks, DEPTH_WIDTH)
        self.inner = nn.Embedding((codebooks - 1) * (CODES + 1), DEPTH_WIDTH)
        self.depth = nn.ModuleList(
            Layer(DEPTH_WIDTH, DEPTH_HEADS, DEPTH_FF, dropout) for _ in range(DEPTH_LAYERS)
        )
        self.depth_norm = nn.RMSNorm(DEPTH_WIDTH)
        self.heads = nn.Linear(DEPTH_WIDTH, codebooks * CODES, bias=False)
        nn.init.normal_(self.inner.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def losses(
        self, codes: Tensor, told: Tensor, spoil: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        """As the delay pattern's. The codes of the frame itself are read as they are."""
        previous = F.pad(codes[:, :-1], (0, 0, 1, 0), value=PAD)
        state = self.enter(self.frame(spoil(previous), told)).flatten(0, 1)
        offset = torch.arange(self.codebooks - 1, device=codes.device) * (CODES + 1)
        before = self.inner(codes[..., :-1].flatten(0, 1) + offset)
        x = state.unsqueeze(1) + self.places.weight
        x = torch.cat([x[:, :1], x[:, 1:] + before], 1)
        x = torch.cat([self._down(part, None) for part in x.split(MOST_ROWS)])
        return [
            cross_entropy(self._head(x[:, k], k).unflatten(0, codes.shape[:2]), codes[:, :, k])
            for k in range(self.codebooks)
        ]

    def generate(self, told: Tensor, frames: Tensor, temperature: float) -> Tensor:
        caches: list[list[Tensor]] = [[] for _ in self.layers]
        last = torch.full((len(told), 1, self.codebooks), PAD, device=told.device)
        out = []
        for at in range(told.shape[1]):
            last = self.one_frame(last, told[:, at : at + 1], caches, temperature)
            last = torch.where((at >= frames)[:, None, None], PAD, last)
            out.append(last)
        return torch.cat(out, 1)

    def one_frame(
        self, last: Tensor, told: Tensor, caches: list[list[Tensor]], temperature: float
    ) -> Tensor:
        """Codes [B, 1, K] of the frame after `last` [B, 1, K]; told [B, 1, C]."""
        state = self.enter(self.frame(last, told, caches))
        x, inner = state + self.places.weight[0], [[] for _ in self.depth]
        codes: list[Tensor] = []
        for k in range(self.codebooks):
            codes.append(sample(self._head(self._down(x, inner), k), temperature))
            if k + 1 < self.codebooks:
                x = state + self.places.weight[k + 1] + self.inner(codes[-1] + k * (CODES + 1))
        return torch.stack(codes, -1)

    def _down(self, x: Tensor, caches: list[list[Tensor]] | None) -> Tensor:
        for i, layer in enumerate(self.depth):
            x = layer(x, None, causal=True, cache=None if caches is None else caches[i])
        return self.depth_norm(x)

    def _head(self, x: Tensor, book: int) -> Tensor:
        return F.linear(x, self.heads.weight[book * CODES : (book + 1) * CODES])
