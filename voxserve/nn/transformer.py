"""The Qwen-style decoder layer: RMSNorm, rotary positions, grouped-query attention, gated MLP.

A layer does not know where its keys and values live. The caller hands it an `Attend`, which takes
one step's queries, keys and values and returns the attention's output: over pages, over a sliding
window, or over the step itself (`voxserve.nn.attention`). Parameter names are those of the
published Qwen, Llama and Mistral checkpoints, so that weights load without renaming.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(queries [B, T, H, D], keys [B, T, Hkv, D], values [B, T, Hkv, D]) -> [B, T, H, D]."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Sizes of a decoder layer; `heads * head` may differ from `hidden`.

    qk_norm: RMSNorm over each head of queries and keys, before the rotation (Qwen 3).
    qkv_bias: biases on the three input projections (Qwen 2).
    layer_scale: a learnt factor per channel on both residual branches (codec transformers).
    """

    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head: int
    eps: float
    qk_norm: bool = False
    qkv_bias: bool = False
    layer_scale: bool = False


class RmsNorm(nn.Module):
    """x / rms(x) * weight over the last axis, computed in float32 (or wider)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Rope(nn.Module):
    """Rotary positions over the two halves of a head ("NeoX" layout), angles in float32."""

    frequencies: Tensor

    def __init__(self, head: int, theta: float) -> None:
        super().__init__()
        exponents = torch.arange(0, head, 2, device="cpu").float() / head
        self.register_buffer("frequencies", 1.0 / theta**exponents, persistent=False)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """positions [B, T] int64 -> (cosines, sines), each [B, T, 1, head] of `dtype`."""
        angles = positions[..., None, None].float() * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Turn heads x [B, T, H, D] by the angles that `Rope` gave for their positions."""
    low, high = x.chunk(2, dim=-1)
    cosines, sines = rope
    return x * cosines + torch.cat((-high, low), dim=-1) * sines


class Attention(nn.Module):
    """Grouped-query self-attention around an `Attend`."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.head = shape.head
        queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
        self.q_proj = nn.Linear(shape.hidden, queries, bias=shape.qkv_bias)
        self.k_proj = nn.Linear(shape.hidden, keys, bias=shape.qkv_bias)
        self.v_proj = nn.Linear(shape.hidden, keys, bias=shape.qkv_bias)
        self.o_proj = nn.Linear(queries, shape.hidden, bias=False)
        self.q_norm = RmsNorm(shape.head, shape.eps) if shape.qk_norm else nn.Identity()
        self.k_norm = RmsNorm(shape.head, shape.eps) if shape.qk_norm else nn.Identity()

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        split = (*x.shape[:2], -1, self.head)
        queries = rotate(self.q_norm(self.q_proj(x).view(split)), rope)
        keys = rotate(self.k_norm(self.k_proj(x).view(split)), rope)
        mixed = attend(queries, keys, self.v_proj(x).view(split))
        out: Tensor = self.o_proj(mixed.flatten(2))
        return out


class GatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x)), without biases."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class LayerScale(nn.Module):
    """A learnt factor per channel."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class DecoderLayer(nn.Module):
    """Pre-norm attention and gated MLP, each added to its input."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = GatedMlp(shape.hidden, shape.inner)
        self.input_layernorm = RmsNorm(shape.hidden, shape.eps)
        self.post_attention_layernorm = RmsNorm(shape.hidden, shape.eps)
        scaled = shape.layer_scale
        self.self_attn_layer_scale = LayerScale(shape.hidden) if scaled else nn.Identity()
        self.mlp_layer_scale = LayerScale(shape.hidden) if scaled else nn.Identity()

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], attend: Attend) -> Tensor:
        """x [B, T, hidden] -> the same shape. `attend` may write keys and values somewhere."""
        mixed = self.self_attn(self.input_layernorm(x), rope, attend)
        x = x + self.self_attn_layer_scale(mixed)
        out: Tensor = x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))
        return out


class Stack(nn.Module):
    """Decoder layers of one shape and their final norm."""

    def __init__(self, shape: LayerShape, layers: int, theta: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(layers))
        self.norm = RmsNorm(shape.hidden, shape.eps)
        self.rope = Rope(shape.head, theta)

    def run(self, x: Tensor, positions: Tensor, attends: Sequence[Attend]) -> Tensor:
        """x [B, T, hidden] at positions [B, T] -> normed hidden states, the same shape."""
        rope = self.rope(positions, x.dtype)
        for layer, attend in zip(self.layers, attends, strict=True):
            x = layer(x, rope, attend)
        out: Tensor = self.norm(x)
        return out
