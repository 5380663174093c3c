"""What a reference clip says: a HuBERT and a few convolutions, 25 vectors a second.

Follows `_extract_semantic_features` and `SemanticEncoder` of the Higgs Audio v2 tokenizer in
transformers, with its parameter names. Clips of a batch differ in length: group norm, attention and
every convolution that pads see what is real alone, so that padding changes nothing.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.higgs_audio_v3.config import SEMANTIC_PAD, Codec, Semantic
from voxserve.nn.attention import attention
from voxserve.nn.causal_conv import masked
from voxserve.nn.resample import Resample

GROUP_EPS = 1e-5


class ColumnNorm(nn.Module):
    """Each channel of x [B, C, T] normed over the real columns of its row (group norm of as many
    groups as channels)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        count = lengths[:, None, None].to(x.dtype)
        mean = masked(x, lengths).sum(dim=2, keepdim=True) / count
        x = x - mean
        variance = masked(x, lengths).pow(2).sum(dim=2, keepdim=True) / count
        x = x * torch.rsqrt(variance + GROUP_EPS)
        return x * self.weight[:, None] + self.bias[:, None]


class FrontLayer(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, *, norm: bool) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        self.conv = nn.Conv1d(inputs, outputs, kernel, stride, bias=False)
        self.layer_norm = ColumnNorm(outputs) if norm else None

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x, lengths = self.conv(x), (lengths - self.kernel) // self.stride + 1
        if self.layer_norm is not None:
            x = self.layer_norm(x, lengths)
        return functional.gelu(x), lengths


class Front(nn.Module):
    """Audio to features at 50 Hz. Nothing pads here, so real columns see real ones alone."""

    def __init__(self, config: Semantic) -> None:
        super().__init__()
        inputs = (1, *config.channels[:-1])
        sizes = zip(inputs, config.channels, config.kernels, config.strides, strict=True)
        self.conv_layers = nn.ModuleList(
            FrontLayer(*size, norm=place == 0) for place, size in enumerate(sizes)
        )

    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = audio[:, None]
        for layer in self.conv_layers:
            x, lengths = layer(x, lengths)
        return x, lengths


class Projection(nn.Module):
    def __init__(self, config: Semantic) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(config.channels[-1], config.eps)
        self.projection = nn.Linear(config.channels[-1], config.hidden)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.projection(self.layer_norm(x))
        return out


class FeedForward(nn.Module):
    def __init__(self, config: Semantic) -> None:
        super().__init__()
        self.intermediate_dense = nn.Linear(config.hidden, config.inner)
        self.output_dense = nn.Linear(config.inner, config.hidden)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.output_dense(functional.gelu(self.intermediate_dense(x)))
        return out


class SelfAttention(nn.Module):
    def __init__(self, config: Semantic) -> None:
        super().__init__()
        self.heads = config.heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(config.hidden, config.hidden) for _ in range(4)
        )

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        split = (*x.shape[:2], self.heads, -1)
        queries, keys = self.q_proj(x).view(split), self.k_proj(x).view(split)
        mixed = attention(queries, keys, self.v_proj(x).view(split), real[:, None])
        out: Tensor = self.out_proj(mixed.flatten(2))
        return out


class Layer(nn.Module):
    """Attention and MLP, each normed after it was added."""

    def __init__(self, config: Semantic) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.layer_norm = nn.LayerNorm(config.hidden, config.eps)
        self.feed_forward = FeedForward(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden, config.eps)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        x = self.layer_norm(x + self.attention(x, real))
        out: Tensor = self.final_layer_norm(x + self.feed_forward(x))
        return out


class PlaceConv(nn.Module):
    """A wide convolution that tells positions apart; its weight is stored as size and direction."""

    def __init__(self, config: Semantic) -> None:
        super().__init__()
        kernel, width = config.place_kernel, config.hidden
        self.kernel = kernel
        self.conv = nn.utils.parametrizations.weight_norm(
            nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=config.place_groups), dim=2
        )

    def finish(self) -> None:
        """Fold the weight's two parts, once they are there."""
        nn.utils.parametrize.remove_parametrizations(self.conv, "weight")
        self.conv.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, C], zero where nothing is real -> the same shape."""
        out = self.conv(x.transpose(1, 2))[:, :, : x.shape[1]]
        return functional.gelu(out).transpose(1, 2)


class Transformer(nn.Module):
    def __init__(self, config: Semantic) -> None:
        super().__init__()
        self.pos_conv_embed = PlaceConv(config)
        self.layer_norm = nn.LayerNorm(config.hidden, config.eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x [B, T, C] -> the mean of the first layer's input and of every layer's output."""
        real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        x = torch.where(real[..., None], x, x.new_zeros(()))
        x = self.layer_norm(x + self.pos_conv_embed(x))
        total = x
        for layer in self.layers:
            x = layer(x, real)
            total = total + x
        return total / (len(self.layers) + 1)


class Hubert(nn.Module):
    def __init__(self, config: Semantic) -> None:
        super().__init__()
        self.feature_extractor = Front(config)
        self.feature_projection = Projection(config)
        self.encoder = Transformer(config)

    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """audio [B, T] at 16 kHz, zero from `lengths` on -> (features [B, F, C], their lengths)."""
        x, lengths = self.feature_extractor(audio, lengths)
        return self.encoder(self.feature_projection(x.transpose(1, 2)), lengths), lengths


class SemanticUnit(nn.Module):
    def __init__(self, width: int, kernel: int, dilation: int) -> None:
        super().__init__()
        padding = (kernel - 1) // 2 * dilation
        self.conv1 = nn.Conv1d(width, width, kernel, padding=padding, dilation=dilation, bias=False)
        self.conv2 = nn.Conv1d(width, width, 1, bias=False)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        y = masked(functional.elu(x), lengths)
        out: Tensor = x + self.conv2(functional.elu(self.conv1(y)))
        return out


class SemanticBlock(nn.Module):
    def __init__(self, config: Semantic) -> None:
        super().__init__()
        width, kernel = config.hidden, config.unit_kernel
        self.res_units = nn.ModuleList(SemanticUnit(width, kernel, d) for d in config.dilations)
        self.conv = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        for unit in self.res_units:
            x = unit(x, lengths)
        out: Tensor = self.conv(masked(x, lengths))
        return out


class SemanticConvs(nn.Module):
    """[B, C, F] -> the same shape."""

    def __init__(self, config: Semantic) -> None:
        super().__init__()
        width, kernel = config.hidden, config.kernel
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, bias=False)
        self.conv_blocks = nn.ModuleList(SemanticBlock(config) for _ in range(config.blocks))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = self.conv(masked(x, lengths))
        for block in self.conv_blocks:
            x = block(x, lengths)
        return x


class Hearing(nn.Module):
    """The whole semantic side of the encoder, but for the names of its two parts."""

    def __init__(self, config: Codec) -> None:
        super().__init__()
        self.skip = config.semantic.skip
        self.resample = Resample(config.rate_hz, config.semantic.rate_hz)

    def forward(
        self, audio: Tensor, lengths: Tensor, hubert: Hubert, convs: SemanticConvs
    ) -> tuple[Tensor, Tensor]:
        """audio [B, T], zero from `lengths` [B] on -> (features [B, C, F], frames [B])."""
        heard, count = self.resample(audio), self.resample.lengths(lengths)
        heard = functional.pad(masked(heard, count), (SEMANTIC_PAD, SEMANTIC_PAD))
        x, columns = hubert(heard, count + 2 * SEMANTIC_PAD)
        x, frames = x[:, :: self.skip], (columns + self.skip - 1) // self.skip
        return convs(x.transpose(1, 2), frames), frames
