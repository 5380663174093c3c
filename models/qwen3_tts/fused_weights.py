"""The codec decoder's weights as the fused kernels take them.

Neighbouring linear maps with nothing between them become one, in float32: codebooks with their
projections, the first convolution with the transformer's input, its output with the first
upsampler, and norms, layer scales and gammas with the matrices beside them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from voxserve.kernels.codec_linear import (
    Behind,
    LinearWeights,
    float_bias,
    pack_transposed_apart,
)
from voxserve.kernels.codec_state import Part
from voxserve.kernels.conv_gemm import ConvWeights, pack_conv, pack_transposed
from voxserve.kernels.residual_unit import LAST_COLUMNS, UnitWeights, pack_last
from voxserve.kernels.snake import SnakeWeights
from voxserve.models.qwen3_tts.codec import DILATIONS, KERNEL, Decoder
from voxserve.models.qwen3_tts.config import CodecDecoder

CONVNEXT_EPS = 1e-6
SNAKE_EPS = 1e-9


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer of the transformer."""

    qkv: LinearWeights
    out: LinearWeights
    gate_up: LinearWeights
    down: LinearWeights


@dataclass(frozen=True, slots=True)
class EarlyWeights:
    """An upsampler and its ConvNeXt block. depthwise: [7, C] float32, and its bias [C] float32."""

    up: LinearWeights
    depthwise: Tensor
    depthwise_bias: Tensor
    widen: LinearWeights
    narrow: LinearWeights


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """A block of the vocoder. entry: the activation that the layer in front applies for it; inside:
    that of the first unit, which `up` applies."""

    entry: SnakeWeights
    up: ConvWeights
    inside: SnakeWeights
    units: tuple[UnitWeights, ...]


@dataclass(frozen=True, slots=True)
class FusedWeights:
    """vectors: [K, codes, C], what each code adds to a frame. frequencies: [D / 2] float32."""

    vectors: Tensor
    pre: ConvWeights
    layers: tuple[LayerWeights, ...]
    frequencies: Tensor
    early: tuple[EarlyWeights, ...]
    first: ConvWeights
    blocks: tuple[BlockWeights, ...]
    last_bias: Tensor


def parts_of(config: CodecDecoder) -> list[Part]:
    """The buffers of a launch that hold state, in the order of use."""
    columns = 1
    parts = [Part(2, config.code_width, columns)]
    for rate in config.early_rates:
        columns *= rate
        parts.append(Part(KERNEL - 1, config.latent, columns))
    parts.append(Part(KERNEL - 1, config.latent, columns))
    width = config.width
    for rate in config.rates:
        parts.append(Part(1, width, columns))
        columns, width = columns * rate, width // 2
        parts += [Part((KERNEL - 1) * dilation, width, columns) for dilation in DILATIONS]
    return [*parts, Part(KERNEL - 1, LAST_COLUMNS, columns, wide=True)]


@torch.no_grad()
def fuse(decoder: Decoder) -> FusedWeights:
    """Fold and pack a loaded decoder's weights; the decoder keeps its own."""
    config = decoder.config
    weights = {name: value.detach() for name, value in decoder.named_parameters()}
    return FusedWeights(
        vectors=_vectors(decoder),
        pre=_pre(weights),
        layers=tuple(_layer(weights, i, config.body.eps) for i in range(config.body.layers)),
        frequencies=decoder.pre_transformer.rope.frequencies.float(),
        early=tuple(_early(weights, i, config) for i in range(len(config.early_rates))),
        first=_conv(weights, "decoder.0", dilation=1),
        blocks=_blocks(weights, config.rates),
        last_bias=weights[f"decoder.{len(config.rates) + 2}.conv.bias"].float(),
    )


Weights = Mapping[str, Tensor]


def _vectors(decoder: Decoder) -> Tensor:
    parts = []
    for quantizer in (decoder.quantizer.rvq_first, decoder.quantizer.rvq_rest):
        projection = quantizer.output_proj.weight[:, :, 0]
        parts.append(quantizer.books.float() @ projection.float().T)
    return torch.cat(parts).to(projection.dtype).contiguous()


def _pre(weights: Weights) -> ConvWeights:
    """The convolution of kernel 3 and the transformer's input projection."""
    conv = weights["pre_conv.conv.weight"]
    project = weights["pre_transformer.input_proj.weight"].float()
    kernel = torch.einsum("oi,ick->ock", project, conv.float()).to(conv.dtype)
    bias = project @ weights["pre_conv.conv.bias"].float()
    bias = bias + weights["pre_transformer.input_proj.bias"].float()
    return ConvWeights(pack_conv(kernel), bias, taps=conv.shape[2])


def _layer(weights: Weights, index: int, eps: float) -> LayerWeights:
    def of(name: str) -> Tensor:
        return weights[f"pre_transformer.layers.{index}.{name}"].float()

    def pack(weight: Tensor) -> Tensor:
        return weight.to(weights["pre_conv.conv.weight"].dtype).contiguous()

    qkv = torch.cat([of(f"self_attn.{name}_proj.weight") for name in "qkv"])
    gate_up = torch.cat([of(f"mlp.{name}_proj.weight") for name in ("gate", "up")])
    out = of("self_attn_layer_scale.scale")[:, None] * of("self_attn.o_proj.weight")
    down = of("mlp_layer_scale.scale")[:, None] * of("mlp.down_proj.weight")
    return LayerWeights(
        qkv=LinearWeights(pack(qkv * of("input_layernorm.weight")), eps=eps),
        out=LinearWeights(pack(out)),
        gate_up=LinearWeights(
            pack(gate_up * of("post_attention_layernorm.weight")), eps=eps, behind=Behind.SWIGLU
        ),
        down=LinearWeights(pack(down)),
    )


def _early(weights: Weights, index: int, config: CodecDecoder) -> EarlyWeights:
    def of(name: str) -> Tensor:
        return weights[f"upsample.{index}.{name}"].float()

    dtype, rate = weights["pre_conv.conv.weight"].dtype, config.early_rates[index]
    matrix, bias, eps = pack_transposed_apart(of("0.conv.weight")), of("0.conv.bias"), None
    bias = float_bias(bias, rate)
    if index == 0:  # the transformer's last norm and output projection stand right in front
        project = weights["pre_transformer.output_proj.weight"].float()
        bias = bias + matrix @ weights["pre_transformer.output_proj.bias"].float()
        matrix = matrix @ project * weights["pre_transformer.norm.weight"].float()
        eps = config.body.eps
    widen, gamma = of("1.pwconv1.weight"), of("1.gamma")
    return EarlyWeights(
        up=LinearWeights(matrix.to(dtype).contiguous(), bias, eps=eps, up=rate),
        depthwise=of("1.dwconv.conv.weight")[:, 0].T.contiguous(),
        depthwise_bias=of("1.dwconv.conv.bias"),
        widen=LinearWeights(
            (widen * of("1.norm.weight")).to(dtype),
            of("1.pwconv1.bias") + widen @ of("1.norm.bias"),
            behind=Behind.GELU,
        ),
        narrow=LinearWeights(
            (gamma[:, None] * of("1.pwconv2.weight")).to(dtype), gamma * of("1.pwconv2.bias")
        ),
    )


def _conv(weights: Weights, name: str, *, dilation: int) -> ConvWeights:
    weight = weights[f"{name}.conv.weight"]
    bias = weights[f"{name}.conv.bias"].float()
    return ConvWeights(pack_conv(weight), bias, taps=weight.shape[2], dilation=dilation)


def _snake(weights: Weights, name: str) -> SnakeWeights:
    frequency = weights[f"{name}.alpha"].float().exp()
    size = 1.0 / (weights[f"{name}.beta"].float().exp() + SNAKE_EPS)
    return SnakeWeights(frequency.contiguous(), size.contiguous())


def _blocks(weights: Weights, rates: tuple[int, ...]) -> tuple[BlockWeights, ...]:
    """Blocks are members 1 … of the list, units members 2 … of a block; the activation behind a
    unit is that of whatever follows it."""
    blocks, behind_all = [], _snake(weights, f"decoder.{len(rates) + 1}")
    last = pack_last(weights[f"decoder.{len(rates) + 2}.conv.weight"])
    for i, rate in enumerate(rates, start=1):
        name = f"decoder.{i}.block"
        up = weights[f"{name}.1.conv.weight"]
        final = i == len(rates)
        following = [f"{name}.{j + 3}.act1" for j in range(len(DILATIONS) - 1)]
        after = [_snake(weights, name) for name in following]
        after.append(behind_all if final else _snake(weights, f"decoder.{i + 1}.block.0"))
        units = tuple(
            UnitWeights(
                first=_conv(weights, f"{name}.{j + 2}.conv1", dilation=dilation),
                inner=_snake(weights, f"{name}.{j + 2}.act2"),
                second=_conv(weights, f"{name}.{j + 2}.conv2", dilation=1),
                outer=after[j],
                last=last if final and j == len(DILATIONS) - 1 else None,
            )
            for j, dilation in enumerate(DILATIONS)
        )
        blocks.append(
            BlockWeights(
                entry=_snake(weights, f"{name}.0"),
                up=ConvWeights(
                    pack_transposed(up, rate),
                    weights[f"{name}.1.conv.bias"].float(),
                    taps=2,
                    up=rate,
                ),
                inside=_snake(weights, f"{name}.2.act1"),
                units=units,
            )
        )
    return tuple(blocks)
