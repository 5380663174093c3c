"""The flow's and the vocoder's part of a small random CosyVoice 3 checkpoint.

Names and shapes are written out here as the published files have them, independent of the loader
under test; the goldens' maker asserts that the reference accepts exactly these. Every value is a
function of its name, of the shape and of the seed, bit by bit the same on any machine.
"""

import numpy as np
import torch

from tests.parity.qwen3_tts.checkpoint import uniform
from voxserve.models.cosyvoice3.config import FlowConfig, VocoderConfig

SMALL_FLOW = FlowConfig(dim=128, depth=3, heads=2, lookahead_channels=48)
SMALL_VOCODER = VocoderConfig(base=64, f0_channels=64)
GROUPS = 16
KERNEL = 31

Shapes = dict[str, tuple[int, ...]]
Tensors = dict[str, torch.Tensor]


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _conv(name: str, inputs: int, outputs: int, kernel: int) -> Shapes:
    return {f"{name}.weight": (outputs, inputs, kernel), f"{name}.bias": (outputs,)}


def _normed(name: str, inputs: int, outputs: int, kernel: int) -> Shapes:
    stored = f"{name}.parametrizations.weight"
    return {
        f"{name}.bias": (outputs,),
        f"{stored}.original0": (outputs, 1, 1),
        f"{stored}.original1": (outputs, inputs, kernel),
    }


def flow_shapes(config: FlowConfig) -> Shapes:
    """The tensors of flow.pt."""
    dim, inner, estimator = config.dim, config.dim * config.ff_mult, "decoder.estimator"
    shapes: Shapes = {"input_embedding.weight": (config.vocabulary, config.mel)}
    shapes |= _linear("spk_embed_affine_layer", config.speaker, config.mel)
    channels = config.lookahead_channels
    shapes |= _conv("pre_lookahead_layer.conv1", config.mel, channels, config.lookahead + 1)
    shapes |= _conv("pre_lookahead_layer.conv2", channels, config.mel, 3)
    shapes |= _linear(f"{estimator}.time_embed.time_mlp.0", 256, dim)
    shapes |= _linear(f"{estimator}.time_embed.time_mlp.2", dim, dim)
    shapes |= _linear(f"{estimator}.input_embed.proj", 4 * config.mel, dim)
    for conv in ("conv1", "conv2"):
        name = f"{estimator}.input_embed.conv_pos_embed.{conv}.0"
        shapes |= _conv(name, dim // GROUPS, dim, KERNEL)
    shapes[f"{estimator}.rotary_embed.inv_freq"] = (config.head // 2,)
    for layer in range(config.depth):
        block = f"{estimator}.transformer_blocks.{layer}"
        shapes |= _linear(f"{block}.attn_norm.linear", dim, 6 * dim)
        for part in ("to_q", "to_k", "to_v"):
            shapes |= _linear(f"{block}.attn.{part}", dim, config.heads * config.head)
        shapes |= _linear(f"{block}.attn.to_out.0", config.heads * config.head, dim)
        shapes |= _linear(f"{block}.ff.ff.0.0", dim, inner)
        shapes |= _linear(f"{block}.ff.ff.2", inner, dim)
    shapes |= _linear(f"{estimator}.norm_out.linear", dim, 2 * dim)
    shapes |= _linear(f"{estimator}.proj_out", dim, config.mel)
    return shapes


def _residual(name: str, width: int, kernel: int, dilations: tuple[int, ...]) -> Shapes:
    shapes: Shapes = {}
    for i in range(len(dilations)):
        for conv in ("convs1", "convs2"):
            shapes |= _normed(f"{name}.{conv}.{i}", width, width, kernel)
        for snake in ("activations1", "activations2"):
            shapes[f"{name}.{snake}.{i}.alpha"] = (width,)
    return shapes


def hift_shapes(config: VocoderConfig) -> Shapes:
    """The tensors of hift.pt, without the prefix that training left."""
    shapes = _linear("m_source.l_linear", config.harmonics + 1, 1)
    shapes |= _normed("conv_pre", config.mel, config.base, config.look_right + 1)
    bins, width, number = config.fft + 2, config.base, 0
    for stage, (rate, kernel) in enumerate(zip(config.rates, config.kernels, strict=True)):
        half = width // 2
        shapes |= _normed(f"ups.{stage}", width, half, kernel)
        stride = int(np.prod(config.rates[stage + 1 :], dtype=int))
        down = 1 if stride == 1 else 2 * stride
        shapes |= _conv(f"source_downs.{stage}", bins, half, down)
        source = (config.source_kernels[stage], config.source_dilations[stage])
        shapes |= _residual(f"source_resblocks.{stage}", half, *source)
        for block in zip(config.res_kernels, config.res_dilations, strict=True):
            shapes |= _residual(f"resblocks.{number}", half, *block)
            number += 1
        width = half
        assert rate > 1
    shapes |= _normed("conv_post", width, bins, 7)
    channels = config.f0_channels
    for layer in range(5):
        inputs, kernel = (config.mel, 4) if layer == 0 else (channels, 3)
        shapes |= _normed(f"f0_predictor.condnet.{2 * layer}", inputs, channels, kernel)
    return shapes | _linear("f0_predictor.classifier", channels, 1)


def _fan_in(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape[1:], dtype=int)) or 1


def flow_tensors(config: FlowConfig, seed: int = 0) -> Tensors:
    """flow.pt, float32: attention that looks at few positions, and a mel of several units."""
    tensors = {}
    for name, shape in flow_shapes(config).items():
        noise = uniform(f"flow{seed} {name}", shape)
        if name == "input_embedding.weight":
            value = noise * 1.5
        elif name.endswith("bias"):
            value = noise * 0.2
        else:
            gain = 1.6 if ".to_q." in name or ".to_k." in name else 1.0
            value = noise * np.float32(gain * (3 / _fan_in(shape)) ** 0.5)
        tensors[name] = torch.from_numpy(value.astype(np.float32))
    rotary = 1.0 / 10_000 ** (torch.arange(0, config.head, 2).float() / config.head)
    tensors["decoder.estimator.rotary_embed.inv_freq"] = rotary
    return tensors


def hift_tensors(config: VocoderConfig, seed: int = 0) -> Tensors:
    """hift.pt, float32, with an F0 that crosses the limit of voicing now and then."""
    tensors = {}
    for name, shape in hift_shapes(config).items():
        noise = uniform(f"hift{seed} {name}", shape)
        if name.endswith("original0"):
            value = 0.75 + 0.25 * noise
        elif name.endswith("alpha"):
            value = 1 + 0.5 * noise
        elif name == "f0_predictor.classifier.bias":
            value = noise * 0 + 150
        elif name == "f0_predictor.classifier.weight":
            value = noise * np.float32(900 * _fan_in(shape) ** -0.5)
        elif name.endswith("bias"):
            value = noise * 0.1
        else:
            value = noise * np.float32((3 / _fan_in(shape)) ** 0.5)
        tensors[name] = torch.from_numpy(value.astype(np.float32))
    return tensors


def noise_table(config: VocoderConfig, seconds: int) -> torch.Tensor:
    """A table of the excitation's noise, [samples, harmonics + 1] in [0, 1)."""
    shape = (seconds * config.rate_hz, config.harmonics + 1)
    return torch.from_numpy(uniform("excitation", shape) * 0.5 + 0.5)


def codes(name: str, count: int) -> torch.Tensor:
    """[count] int64, codes of the published vocabulary."""
    noise = torch.from_numpy(uniform(f"codes {name}", (count,)))
    return ((noise + 1) * (6561 / 2)).long().clamp(0, 6560)


def numbers(name: str, shape: tuple[int, ...], size: float = 1.0) -> torch.Tensor:
    """float32, uniform within ± size: mel frames, speaker vectors."""
    return torch.from_numpy(uniform(name, shape)) * size
