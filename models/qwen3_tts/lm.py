"""The language model: a talker that says a frame's first code, and a depth transformer for the
other fifteen. Parameter names are the published ones, so that a checkpoint loads one to one.

Follows `Qwen3TTSTalkerForConditionalGeneration` and its code predictor of qwen-tts 0.1.1. The
rotary positions are declared there as three interleaved streams; the streams are always equal, so
plain rotary positions give the same numbers.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.qwen3_tts.config import Talker, Transformer
from voxserve.nn.attention import GrowingKv
from voxserve.nn.transformer import LayerShape, Stack

Choose = Callable[[Tensor, int], Tensor]
"""(logits [B, V] float32, codebook) -> codes [B] int64."""


def layer_shape(sizes: Transformer, *, qk_norm: bool, layer_scale: bool = False) -> LayerShape:
    """The layer sizes that `voxserve.nn` builds from, of a stack's configuration."""
    return LayerShape(
        hidden=sizes.hidden,
        inner=sizes.inner,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head=sizes.head,
        eps=sizes.eps,
        qk_norm=qk_norm,
        layer_scale=layer_scale,
    )


class TalkerStack(Stack):
    def __init__(self, config: Talker) -> None:
        body = config.body
        super().__init__(layer_shape(body, qk_norm=True), body.layers, body.theta)
        self.text_embedding = nn.Embedding(config.text_vocabulary, config.text_hidden)
        self.codec_embedding = nn.Embedding(config.codes, config.body.hidden)


class DepthStack(Stack):
    def __init__(self, config: Talker) -> None:
        depth = config.depth
        super().__init__(layer_shape(depth, qk_norm=True), depth.layers, depth.theta)
        # As wide as the talker, not as this stack: their sum is the talker's next input.
        self.codec_embedding = nn.ModuleList(
            nn.Embedding(config.depth_codes, config.body.hidden)
            for _ in range(config.codebooks - 1)
        )


class TextProjection(nn.Module):
    """Text embeddings to the talker's width."""

    def __init__(self, text: int, hidden: int) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(text, text)
        self.linear_fc2 = nn.Linear(text, hidden)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear_fc2(functional.silu(self.linear_fc1(x)))
        return out


class DepthModel(nn.Module):
    """The code predictor: codes 1 … K-1 of one frame, each from those before it."""

    def __init__(self, config: Talker) -> None:
        super().__init__()
        self.model = DepthStack(config)
        self.lm_head = nn.ModuleList(
            nn.Linear(config.depth.hidden, config.depth_codes, bias=False)
            for _ in range(config.codebooks - 1)
        )
        wide, narrow = config.body.hidden, config.depth.hidden
        same = wide == narrow
        self.small_to_mtp_projection = nn.Identity() if same else nn.Linear(wide, narrow)

    def forward(self, hidden: Tensor, first: Tensor, embedded: Tensor, choose: Choose) -> Tensor:
        """Codes of one frame.

        hidden: [B, H] talker state whose logits gave `first` [B] int64; embedded: [B, H], the
        talker's embedding of `first`. Returns [B, K] int64, `first` included.
        """
        attends = [GrowingKv() for _ in self.model.layers]
        codes = [first]
        x = torch.stack((hidden, embedded), dim=1)
        place = torch.arange(len(self.lm_head) + 1, device=hidden.device)[None]
        start = 0
        for k, head in enumerate(self.lm_head):
            end = k + 2
            out = self.model.run(self.small_to_mtp_projection(x), place[:, start:end], attends)
            codes.append(choose(head(out[:, -1]).float(), k + 1))
            x, start = self.model.codec_embedding[k](codes[-1])[:, None], end
        return torch.stack(codes, dim=1)


class TalkerModel(nn.Module):
    """The language model without the speaker encoder. Call `finish` once the weights are there."""

    frame_table: Tensor
    frame_starts: Tensor

    def __init__(self, config: Talker) -> None:
        super().__init__()
        self.config = config
        self.model = TalkerStack(config)
        self.text_projection = TextProjection(config.text_hidden, config.body.hidden)
        self.codec_head = nn.Linear(config.body.hidden, config.codes, bias=False)
        self.code_predictor = DepthModel(config)

    def finish(self) -> None:
        """Lay the embedding tables of all codebooks behind each other, so that one gather finds a
        frame; the tables themselves become views of the whole."""
        tables = [self.model.codec_embedding, *self.code_predictor.model.codec_embedding]
        whole = torch.cat([table.weight for table in tables]).detach()
        starts = torch.tensor([0] + [len(table.weight) for table in tables[:-1]]).cumsum(0)
        for table, start in zip(tables, starts.tolist(), strict=True):
            part = whole[start : start + len(table.weight)]
            table.weight = nn.Parameter(part, requires_grad=False)
        self.register_buffer("frame_table", whole, persistent=False)
        self.register_buffer("frame_starts", starts.to(whole.device), persistent=False)

    def text(self, ids: Tensor) -> Tensor:
        """Text ids [...] int64 -> [..., H]; an id below 0 gives zeros (no text side)."""
        x = self.text_projection(self.model.text_embedding(ids.clamp(min=0)))
        return torch.where((ids >= 0)[..., None], x, x.new_zeros(()))

    def code(self, ids: Tensor) -> Tensor:
        """Ids [...] int64 of the talker's code vocabulary -> [..., H]; below 0 gives zeros."""
        x = self.model.codec_embedding(ids.clamp(min=0))
        return torch.where((ids >= 0)[..., None], x, x.new_zeros(()))

    def frame(self, codes: Tensor) -> Tensor:
        """Codes [..., K] int64, in range, of whole frames -> [..., H], sums of their embeddings."""
        rows = codes.flatten(0, -2) + self.frame_starts
        summed = functional.embedding_bag(rows, self.frame_table, mode="sum")
        return summed.view(*codes.shape[:-1], -1)

    def speak(self, hidden: Tensor, choose: Choose) -> Tensor:
        """Hidden states [B, H] of the last position -> codes [B, K] int64 of the next frame."""
        first = choose(self.codec_head(hidden).float(), 0)
        embedded = self.model.codec_embedding(first)
        codes: Tensor = self.code_predictor(hidden, first, embedded, choose)
        return codes
