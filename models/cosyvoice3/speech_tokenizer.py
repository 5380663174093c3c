"""The speech tokenizer of CosyVoice 3 (S3, version 3): Whisper features to one code per 40 ms.

A transformer over 25 positions a second whose attention has a memory branch, a depthwise
convolution of the values (FSMN); then eight numbers a position are rounded to three levels each,
which together are the code. Parameters are named as in speech_tokenizer_v3.onnx. Follows
`S3TokenizerV3` of s3tokenizer 0.3.0. Rows of one batch may differ in length: everything that looks
to the right finds zeros behind a row's end, and attention leaves them out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.errors import CheckpointError
from voxserve.nn.attention import attention
from voxserve.nn.causal_conv import masked
from voxserve.nn.transformer import Rope, rotate

LEVELS, DIGITS = 3, 8
HEAD = 64
MEMORY = 31
THETA = 10_000.0
SATURATION = 0.9990000128746033
"""Keeps tanh(x) off the borders of rounding; the value of the published file."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SpeechTokenizerSizes:
    """The published sizes; a file tells its own by its shapes. Heads are always 64 wide."""

    mels: int = 128
    width: int = 1280
    inner: int = 5120
    layers: int = 12

    @classmethod
    def of(cls, shapes: Mapping[str, Shape]) -> "SpeechTokenizerSizes":
        """The sizes of a file. Raises CheckpointError when it is of another kind."""
        blocks = {int(found[1]) for name in shapes if (found := re.match(r"blocks\.(\d+)\.", name))}
        try:
            width, mels, _ = shapes["conv1.weight"]
            inner, _ = shapes["blocks.0.mlp.0.weight"]
        except (KeyError, ValueError) as error:
            raise CheckpointError(f"no speech tokenizer: {error} is missing or odd") from error
        return cls(mels, width, inner, len(blocks))


class Mixer(nn.Module):
    """Attention everywhere in the clip, plus the memory branch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.fsmn_block = nn.Conv1d(
            width, width, MEMORY, padding=MEMORY // 2, groups=width, bias=False
        )

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], lengths: Tensor) -> Tensor:
        split = (*x.shape[:2], -1, HEAD)
        queries = rotate(self.query(x).view(split), rope)
        keys = rotate(self.key(x).view(split), rope)
        values = self.value(x)
        inside = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        mixed = attention(queries, keys, values.view(split), inside[:, None])
        kept = masked(values.transpose(1, 2), lengths)
        memory = (self.fsmn_block(kept) + kept).transpose(1, 2)
        out: Tensor = self.out(mixed.flatten(2)) + memory
        return out


class Block(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.attn = Mixer(width)
        self.attn_ln = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
        self.mlp_ln = nn.LayerNorm(width)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], lengths: Tensor) -> Tensor:
        x = x + self.attn(self.attn_ln(x), rope, lengths)
        out: Tensor = x + self.mlp(self.mlp_ln(x))
        return out


class Quantizer(nn.Module):
    """Finite scalar quantisation: each of eight numbers to -1, 0 or 1, read as base-3 digits."""

    powers: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project_in = nn.Linear(width, DIGITS)
        powers = LEVELS ** torch.arange(DIGITS, device="cpu")
        self.register_buffer("powers", powers, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, F, width] -> [B, F] int64."""
        digits = (torch.tanh(self.project_in(x)) * SATURATION).round().long() + 1
        return (digits * self.powers).sum(dim=-1)


class SpeechTokenizer(nn.Module):
    """See the module's docstring."""

    def __init__(self, sizes: SpeechTokenizerSizes) -> None:
        super().__init__()
        width = sizes.width
        self.conv1 = nn.Conv1d(sizes.mels, width, 3, stride=2, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(Block(width, sizes.inner) for _ in range(sizes.layers))
        self.quantizer = Quantizer(width)
        self.rope = Rope(HEAD, THETA)

    def forward(self, mel: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """mel [B, mels, T] float32 at 100 Hz, zero from column `frames` [B] int64 on.

        Returns (codes [B, ceil(ceil(T / 2) / 2)] int64 in [0, 3^8), their numbers [B]); what lies
        behind a row's codes is unspecified.
        """
        x = functional.gelu(self.conv1(mel))
        lengths = (frames + 1) // 2
        x = functional.gelu(self.conv2(masked(x, lengths)))
        lengths = (lengths + 1) // 2
        x = x.transpose(1, 2)
        rope = self.rope(torch.arange(x.shape[1], device=x.device)[None], x.dtype)
        for block in self.blocks:
            x = block(x, rope, lengths)
        return self.quantizer(x), lengths
