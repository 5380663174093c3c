"""The language model of tiny: a decoder over frames and a depth transformer within each frame.

A position's input is the sum of its text side and its code side. The decoder's last hidden state
gives code 0; the depth transformer reads that state, then code 0, then code 1, …, and gives the
next code each time.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from voxserve.models.tiny.config import TEXT_IDS, Body, TinyConfig
from voxserve.nn.attention import GrowingKv
from voxserve.nn.rvq import rvq_decode
from voxserve.nn.transformer import Attend, DecoderLayer, LayerShape, RmsNorm, Rope

Choose = Callable[[Tensor, int], Tensor]
"""(logits [B, codes] float32, codebook) -> codes [B] int64."""


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

    def forward(self, hidden: Tensor, first: Tensor, embedded: Tensor, choose: Choose) -> Tensor:
        """Codes [B, K] int64 of a frame.

        hidden: [B, 1, hidden], the state that gave code 0, `first` [B] int64; embedded: [B, 1,
        hidden], that code's embedding.
        """
        caches = [GrowingKv() for _ in self.layers]
        places = torch.arange(len(self.books) + 1, device=hidden.device)[None]
        cosines, sines = self.rope(places, hidden.dtype)
        codes, begin = [first], 0
        x = torch.cat((hidden, embedded), dim=1)
        for book, (embeddings, outputs) in enumerate(zip(self.books, self.outputs, strict=True), 1):
            rope = cosines[:, begin : book + 1], sines[:, begin : book + 1]
            for layer, cache in zip(self.layers, caches, strict=True):
                x = layer(x, rope, cache)
            codes.append(choose((self.norm(x[:, -1]) @ outputs.T).float(), book))
            x, begin = embeddings[codes[-1]][:, None], book + 1
        return torch.stack(codes, dim=1)
