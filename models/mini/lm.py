"""The language model of mini: phonemes to frames of six codes, one frame a step.

The text encoder reads the phonemes both ways and says how long each one lasts. That lays the text
out over the frames, so at every step the decoder is told which phoneme it is in: it can neither
skip nor loop, and its end is known from the start. Codebook k of a frame follows k steps behind
codebook 0 (the delay pattern of MusicGen, Copet et al. 2023).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.mini.config import UNITS_A_FRAME, CodecSizes, LmSizes
from voxserve.nn.transformer import Attend, RmsNorm, Rope, rotate

EPS = 1.1920929e-07
LONGEST = 5.0
"""Logarithm of the longest phoneme, in units."""


class Layer(nn.Module):
    """Pre-norm attention and SwiGLU; projections of one input are one matrix."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RmsNorm(width, EPS), RmsNorm(width, EPS)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """x [B, T, width] -> the same shape."""
        mixed: Tensor = self.qkv(self.norm1(x))
        queries, keys, values = mixed.view(*x.shape[:2], 3, self.heads, -1).unbind(2)
        x = x + self.out(attend(rotate(queries, rope), rotate(keys, rope), values).flatten(2))
        gate, value = self.up(self.norm2(x)).chunk(2, dim=-1)
        out: Tensor = x + self.down(functional.silu(gate) * value)
        return out


class LayoutBlock(nn.Module):
    """ConvNeXt block over the frames of the laid-out text, seeing both ways."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, inside: Tensor) -> Tensor:
        """x [B, F, C]; inside [B, F, 1] bool, false behind a row's end."""
        inner = self.depthwise((x * inside).transpose(1, 2)).transpose(1, 2)
        out: Tensor = x + self.down(functional.gelu(self.up(self.norm(inner))))
        return out


class Lm(nn.Module):
    def __init__(self, sizes: LmSizes, codec: CodecSizes) -> None:
        super().__init__()
        text, width, books = sizes.text_width, sizes.width, codec.codebooks
        self.books, self.coded = books, codec.codes
        self.symbols = nn.Embedding(sizes.symbols, text)
        self.context = nn.Conv1d(text, text, 5, padding=2)
        self.text = nn.ModuleList(
            Layer(text, sizes.text_heads, sizes.text_inner) for _ in range(sizes.text_layers)
        )
        self.text_norm = RmsNorm(text, EPS)
        self.length = nn.Sequential(nn.Linear(text, 256), nn.GELU(), nn.Linear(256, 1))
        self.place = nn.Linear(UNITS_A_FRAME * (text + 3), width)
        self.layout = nn.ModuleList(
            LayoutBlock(width, sizes.layout_kernel) for _ in range(sizes.layout_blocks)
        )
        self.codes = nn.Embedding(books * (codec.codes + 1), width)
        self.layers = nn.ModuleList(
            Layer(width, sizes.heads, sizes.inner) for _ in range(sizes.layers)
        )
        self.norm = RmsNorm(width, EPS)
        self.heads = nn.Linear(width, books * codec.codes, bias=False)
        self.text_rope = Rope(text // sizes.text_heads, 10_000)
        self.rope = Rope(width // sizes.heads, 10_000)

    def read(self, ids: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """Blocks of phonemes ids [B, N] int64, inside [B, N] bool, to text [B, N, C] and the units
        of 25 ms that each lasts, [B, N] int64, 0 outside."""
        x = self.symbols(ids) * inside[..., None]
        x = x + functional.gelu(self.context(x.transpose(1, 2)).transpose(1, 2))
        rope = self.text_rope(torch.arange(ids.shape[1], device=ids.device)[None], x.dtype)
        # A block of nothing looks at its first place, so that no row of the softmax is empty.
        seen = inside | (torch.arange(ids.shape[1], device=ids.device) == 0)

        def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            out = functional.scaled_dot_product_attention(
                queries.transpose(1, 2),
                keys.transpose(1, 2),
                values.transpose(1, 2),
                seen[:, None, None],
            )
            return out.transpose(1, 2)

        for layer in self.text:
            x = layer(x, rope, attend)
        x = self.text_norm(x)
        natural = self.length(x).squeeze(-1).float().clamp(max=LONGEST).exp()
        return x, natural.round().clamp(min=1).long() * inside

    def lay_out(self, text: Tensor, units: Tensor, frames: int) -> tuple[Tensor, Tensor]:
        """text [B, N, C] and units [B, N] to what the decoder is told at each of the first `frames`
        frames, [B, frames, width], and the frames of each row, [B] int64."""
        ends = units.cumsum(1)
        total = (ends[:, -1] + UNITS_A_FRAME - 1) // UNITS_A_FRAME
        at = torch.arange(UNITS_A_FRAME * frames, device=units.device)
        at = torch.minimum(at.expand(len(units), -1), (ends[:, -1:] - 1).clamp(min=0)).contiguous()
        phoneme = torch.searchsorted(ends, at, right=True).clamp(max=units.shape[1] - 1)
        length, left = units.gather(1, phoneme), ends.gather(1, phoneme) - at
        ages = torch.stack((length - left, left, length), dim=-1).float().log1p()
        spread = text.gather(1, phoneme[..., None].expand(-1, -1, text.shape[-1]))
        pairs = torch.cat((spread, ages.to(text.dtype)), dim=-1)
        x = self.place(pairs.view(len(units), frames, -1))
        inside = (torch.arange(frames, device=units.device) < total[:, None])[..., None]
        for block in self.layout:
            x = block(x, inside)
        return x * inside, total

    def forward(self, last: Tensor, told: Tensor, steps: Tensor, attends: list[Attend]) -> Tensor:
        """One step: last [B, K] int64 codes of the step before, told [B, width], steps [B] int64,
        one Attend a layer. Returns logits [B, K, codes]."""
        offsets = torch.arange(self.books, device=last.device) * (self.coded + 1)
        x = (self.codes(last + offsets).sum(dim=1) + told)[:, None]
        rope = self.rope(steps[:, None], x.dtype)
        for layer, attend in zip(self.layers, attends, strict=True):
            x = layer(x, rope, attend)
        logits: Tensor = self.heads(self.norm(x[:, 0]))
        return logits.view(-1, self.books, self.coded)
