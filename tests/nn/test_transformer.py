"""The decoder layer against its definition, written out."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from voxserve.nn.attention import causal
from voxserve.nn.transformer import DecoderLayer, LayerShape, RmsNorm, Rope, rotate


def random_layer(shape: LayerShape) -> DecoderLayer:
    layer = DecoderLayer(shape).double()
    generator = torch.Generator().manual_seed(1)
    for parameter in layer.parameters():
        parameter.data.normal_(0.0, 0.5, generator=generator)
    return layer


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def turned(x: Tensor, theta: float) -> Tensor:
    """Heads x [T, H, D] as complex numbers (first half real, second imaginary), turned."""
    half = x.shape[-1] // 2
    angles = torch.arange(len(x)).double()[:, None] * theta ** (-torch.arange(half).double() / half)
    spun = (
        torch.complex(x[..., :half], x[..., half:])
        * torch.polar(torch.ones_like(angles), angles)[:, None]
    )
    return torch.cat((spun.real, spun.imag), dim=-1)


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("qkv_bias", [False, True])
@pytest.mark.parametrize("layer_scale", [False, True])
def test_layer_equals_its_definition(qk_norm: bool, qkv_bias: bool, layer_scale: bool) -> None:
    options = {"qk_norm": qk_norm, "qkv_bias": qkv_bias, "layer_scale": layer_scale}
    layer = random_layer(LayerShape(12, 20, 4, 2, 6, 1e-6, **options))
    w = layer.state_dict()
    x = torch.randn(7, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    normed = rms(x, w["input_layernorm.weight"], 1e-6)
    parts = []
    for name in "qkv":
        bias = w.get(f"self_attn.{name}_proj.bias", torch.tensor(0.0))
        parts.append((normed @ w[f"self_attn.{name}_proj.weight"].T + bias).view(7, -1, 6))
    q, k, v = parts
    if qk_norm:
        q = rms(q, w["self_attn.q_norm.weight"], 1e-6)
        k = rms(k, w["self_attn.k_norm.weight"], 1e-6)
    q, k = turned(q, 100.0), turned(k, 100.0)
    mixed = torch.zeros(7, 4, 6, dtype=torch.float64)
    for t in range(7):
        for head in range(4):
            scores = k[: t + 1, head // 2] @ q[t, head] / math.sqrt(6)
            mixed[t, head] = scores.softmax(0) @ v[: t + 1, head // 2]
    one = torch.tensor(1.0)
    y = x + mixed.flatten(1) @ w["self_attn.o_proj.weight"].T * w.get(
        "self_attn_layer_scale.scale", one
    )
    normed = rms(y, w["post_attention_layernorm.weight"], 1e-6)
    gate, up = normed @ w["mlp.gate_proj.weight"].T, normed @ w["mlp.up_proj.weight"].T
    inner = (gate * gate.sigmoid() * up) @ w["mlp.down_proj.weight"].T
    expected = y + inner * w.get("mlp_layer_scale.scale", one)
    rope = Rope(6, 100.0)(torch.arange(7)[None], torch.float64)
    # The angles are rounded to float32.
    assert_close(layer(x[None], rope, causal)[0], expected, rtol=0, atol=1e-6)


def test_rotation_depends_on_distance_alone() -> None:
    rope = Rope(8, 1e4)
    generator = torch.Generator().manual_seed(3)
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64, generator=generator)

    def product(at: int, other: int) -> float:
        left = rotate(query, rope(torch.tensor([[at]]), torch.float64))
        right = rotate(key, rope(torch.tensor([[other]]), torch.float64))
        return float((left * right).sum())

    assert product(3, 1) == pytest.approx(product(1003, 1001), abs=1e-3)
    assert abs(product(3, 1) - product(4, 1)) > 1e-3


def test_norm_has_unit_mean_square_and_does_not_overflow() -> None:
    norm = RmsNorm(16, 1e-6)
    x = torch.full((2, 16), 3e4, dtype=torch.bfloat16)
    assert_close(norm.to(torch.bfloat16)(x), torch.ones_like(x))


def test_frequencies_survive_modules_without_storage() -> None:
    with torch.device("meta"):
        rope = Rope(8, 1e4)
    assert_close(rope.frequencies, Rope(8, 1e4).frequencies)
