"""The language model of tiny: a decoder over frames and a depth transformer within each frame.

A position's input is the sum of its text side and its code side. The decoder's last hidden state
gives code 0; the depth transformer reads that state, then code 0, then code 1, …, and gives the
next code each time.
"""

import torch
from torch import Tensor, nn

from voxserve.models.tiny.config import TEXT_IDS, Body, TinyConfig
from voxserve.nn.attention import GrowingKv
from voxserve.nn.rvq import rvq_decode
from voxserve.nn.transformer import Attend, DecoderLayer, LayerShape, RmsNorm, Rope


def layer_shape(body: Body, *, qk_norm: bool = False, layer_scale: bool = False) -> LayerShape:
    return LayerShape(
        hidden=body.hidden,
        inner=body.inner,
        heads=body.heads,
        kv_heads=body.kv_heads,
        head=body.head,
        eps=body.eps,
        qk_norm=qk_norm,
        layer_scale=layer_scale,
    )


class Lm(nn.Module):
    """Embeddings, decoder layers and the output over codebook 0."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        hidden = config.lm.hidden
        shape = layer_shape(config.lm, qk_norm=True)
        self.text = nn.Embedding(TEXT_IDS, hidden)
        self.first = nn.Embedding(config.code_ids, hidden)
        self.rope = Rope(config.lm.head, config.lm.theta)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(config.lm.layers))
        self.norm = RmsNorm(hidden, config.lm.eps)
        self.output = nn.Linear(hidden, config.codes + 1, bias=False)
        self.depth = Depth(config)

    def embed_frame(self, codes: Tensor) -> Tensor:
        """The code side of a finished frame: codes [B, K] int64 -> [B, 1, hidden]."""
        others = rvq_decode(codes[:, None, 1:], self.depth.books)
        summed: Tensor = self.first(codes[:, :1]) + others
        return summed

    def forward(self, x: Tensor, positions: Tensor, attends: list[Attend]) -> Tensor:
        """x [B, T, hidden], positions [B, T] int64, one Attend a layer. -> [B, T, hidden]."""
        rope = self.rope(positions, x.dtype)
        for layer, attend in zip(self.layers, attends, strict=True):
            x = layer(x, rope, attend)
        out: Tensor = self.norm(x)
        return out


class Depth(nn.Module):
    """The depth transformer: codes 1 … K - 1 of a frame, one after the other.

    books: [K - 1, codes, hidden] embeddings, outputs: [K - 1, codes, hidden] of codebooks 1 ….
    """

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        shape = layer_shape(config.lm)
        hidden, others = config.lm.hidden, config.codebooks - 1
        self.rope = Rope(config.lm.head, config.lm.theta)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(config.depth_layers))
        self.norm = RmsNorm(hidden, config.lm.eps)
        self.books = nn.Parameter(torch.empty(others, config.codes, hidden))
        self.outputs = nn.Parameter(torch.empty(others, config.codes, hidden))

    def start(self) -> list[Attend]:
        """Empty caches for a new frame."""
        return [GrowingKv() for _ in self.layers]

    def turns(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """What `Rope` gives for all positions of a frame, to be computed once a frame."""
        positions = torch.arange(len(self.books) + 1, device=device)[None]
        turns: tuple[Tensor, Tensor] = self.rope(positions, dtype)
        return turns

    def forward(
        self, x: Tensor, first: int, turns: tuple[Tensor, Tensor], caches: list[Attend]
    ) -> Tensor:
        """Run x [B, T, hidden] at positions first … first + T - 1. Returns logits [B, codes] of
        the codebook whose number is the last position."""
        end = first + x.shape[1]
        rope = (turns[0][:, first:end], turns[1][:, first:end])
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, rope, cache)
        hidden: Tensor = self.norm(x[:, -1])
        return hidden @ self.outputs[end - 2].T
