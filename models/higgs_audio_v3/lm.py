"""The language model: Qwen 3 over text and delayed codes; one tied table for all codebooks."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.higgs_audio_v3.config import Body
from voxserve.nn.transformer import LayerShape, Stack


class HiggsLm(nn.Module):
    """Parameter names are the published ones but for their prefixes (`weights.rename`).

    codes: one table for all codebooks, one behind the other. A row of codes is heard as the sum of
    its entries, and the next row is said by comparing the hidden state with every entry.
    """

    starts: Tensor

    def __init__(self, config: Body) -> None:
        super().__init__()
        self.config = config
        self.shape = LayerShape(
            hidden=config.hidden,
            inner=config.inner,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head=config.head,
            eps=config.eps,
            qk_norm=True,
        )
        self.body = Stack(self.shape, config.layers, config.theta)
        self.text = nn.Embedding(config.text_vocabulary, config.hidden)
        self.codes = nn.Embedding(config.codebooks * config.codes, config.hidden)
        starts = torch.arange(config.codebooks, device="cpu") * config.codes
        self.register_buffer("starts", starts, persistent=False)

    def heard(self, codes: Tensor) -> Tensor:
        """Rows of codes [..., K] int64 -> [..., H]."""
        rows = codes.flatten(0, -2) + self.starts
        summed = functional.embedding_bag(rows, self.codes.weight, mode="sum")
        return summed.view(*codes.shape[:-1], -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [B, H] behind the final norm -> [B, K, codes] float32."""
        said = functional.linear(hidden, self.codes.weight).float()
        return said.view(len(hidden), self.config.codebooks, self.config.codes)
