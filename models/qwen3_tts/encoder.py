"""The codec's encoder: a reference clip to the codes that the model is prompted with.

The encoder half of Mimi with the parameter names that transformers gives it, which is what
qwen-tts 0.1.1 runs. Its transformer attends to everything before (the reference applies no
window, whatever the configuration says). Rows of one batch may differ in length: what lies behind
a row's end is cleared wherever a layer could look at it, so that a padded row gives the codes of
the clip alone.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.qwen3_tts.config import CodecEncoder
from voxserve.nn.attention import causal
from voxserve.nn.causal_conv import masked, strided
from voxserve.nn.rvq import centroids, rvq_encode
from voxserve.nn.transformer import Attention, LayerScale, LayerShape, Rope

DOWN_RATE = 2
DOWN_KERNEL = 4


class Conv(nn.Module):
    """Causal convolution of a whole clip; parameters live in `conv`."""

    def __init__(self, inputs: int, outputs: int, kernel: int, rate: int = 1) -> None:
        super().__init__()
        self.rate = rate
        self.conv = nn.Conv1d(inputs, outputs, kernel)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        if self.rate > 1:
            x = masked(x, lengths)
        return strided(x, self.conv, self.rate)


class Residual(nn.Module):
    def __init__(self, width: int, config: CodecEncoder) -> None:
        super().__init__()
        half = width // config.compress
        wide, narrow = Conv(width, half, config.residual_kernel), Conv(half, width, 1)
        self.block = nn.ModuleList([nn.ELU(), wide, nn.ELU(), narrow])

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        y = x
        for layer in self.block:
            y = layer(y, lengths) if isinstance(layer, Conv) else layer(y)
        return x + y


class ConvEncoder(nn.Module):
    """Audio [B, 1, T] to features at 25 Hz."""

    def __init__(self, config: CodecEncoder) -> None:
        super().__init__()
        width = config.filters
        layers: list[nn.Module] = [Conv(1, width, config.kernel)]
        for rate in config.rates:
            down = Conv(width, 2 * width, 2 * rate, rate)
            layers += [Residual(width, config), nn.ELU(), down]
            width *= 2
        layers += [nn.ELU(), Conv(width, config.hidden, config.last_kernel)]
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (features [B, hidden, T'], their lengths [B])."""
        for layer in self.layers:
            x = layer(x) if isinstance(layer, nn.ELU) else layer(x, lengths)
            if isinstance(layer, Conv):
                lengths = -(-lengths // layer.rate)
        return x, lengths


class Mlp(nn.Module):
    def __init__(self, config: CodecEncoder) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.hidden, config.inner, bias=False)
        self.fc2 = nn.Linear(config.inner, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(functional.gelu(self.fc1(x)))
        return out


class Layer(nn.Module):
    def __init__(self, config: CodecEncoder) -> None:
        super().__init__()
        size, heads = config.hidden, config.heads
        shape = LayerShape(size, config.inner, heads, heads, config.head, config.eps)
        self.self_attn = Attention(shape)
        self.mlp = Mlp(config)
        self.input_layernorm = nn.LayerNorm(size, eps=config.eps)
        self.post_attention_layernorm = nn.LayerNorm(size, eps=config.eps)
        self.self_attn_layer_scale = LayerScale(size)
        self.mlp_layer_scale = LayerScale(size)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        mixed = self.self_attn(self.input_layernorm(x), rope, causal)
        x = x + self.self_attn_layer_scale(mixed)
        out: Tensor = x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))
        return out


class Transformer(nn.Module):
    def __init__(self, config: CodecEncoder) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.rope = Rope(config.head, config.theta)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)[None]
        rope = self.rope(places, x.dtype)
        for layer in self.layers:
            x = layer(x, rope)
        return x


class Downsample(nn.Module):
    """Halve the frame rate; beyond its ends a clip goes on as its first and last column."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, DOWN_KERNEL, stride=DOWN_RATE, bias=False)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        left, extra = DOWN_KERNEL - DOWN_RATE, x.shape[2] % DOWN_RATE
        place = torch.arange(-left, x.shape[2] + extra, device=x.device).clamp(min=0)
        index = torch.minimum(place, lengths[:, None] - 1)
        out: Tensor = self.conv(x.gather(2, index[:, None].expand(-1, x.shape[1], -1)))
        return out


class Book(nn.Module):
    def __init__(self, config: CodecEncoder) -> None:
        super().__init__()
        self.embed_sum = nn.Parameter(torch.zeros(config.codes, config.code_width))
        self.cluster_usage = nn.Parameter(torch.ones(config.codes))


class BookLayer(nn.Module):
    def __init__(self, config: CodecEncoder) -> None:
        super().__init__()
        self.codebook = Book(config)


class Books(nn.Module):
    """Codebooks in a row, each taking what the ones before it left over."""

    books: Tensor

    def __init__(self, config: CodecEncoder, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(BookLayer(config) for _ in range(count))
        self.input_proj = nn.Conv1d(config.hidden, config.code_width, 1, bias=False)

    def finish(self) -> None:
        """Divide the stored sums by their counts, once the weights are there."""
        parts = [layer.get_submodule("codebook") for layer in self.layers]
        vectors = [centroids(part.embed_sum, part.cluster_usage) for part in parts]  # type: ignore[arg-type]
        del self.layers
        self.register_buffer("books", torch.stack(vectors).detach(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, hidden, F] -> [B, F, books] int64."""
        return rvq_encode(self.input_proj(x).transpose(1, 2), self.books)


class SplitBooks(nn.Module):
    def __init__(self, config: CodecEncoder, books: int) -> None:
        super().__init__()
        semantic = config.semantic_books
        self.semantic_residual_vector_quantizer = Books(config, semantic)
        self.acoustic_residual_vector_quantizer = Books(config, books - semantic)

    def forward(self, x: Tensor) -> Tensor:
        first = self.semantic_residual_vector_quantizer(x)
        return torch.cat((first, self.acoustic_residual_vector_quantizer(x)), dim=2)


class Encoder(nn.Module):
    """See the module's docstring. books: codebooks that are kept. Call `finish` after loading."""

    def __init__(self, config: CodecEncoder, books: int) -> None:
        super().__init__()
        self.samples_per_frame = math.prod(config.rates) * DOWN_RATE
        self.encoder = ConvEncoder(config)
        self.encoder_transformer = Transformer(config)
        self.downsample = Downsample(config.hidden)
        self.quantizer = SplitBooks(config, books)

    def finish(self) -> None:
        self.quantizer.semantic_residual_vector_quantizer.finish()
        self.quantizer.acoustic_residual_vector_quantizer.finish()

    def forward(self, audio: Tensor, lengths: Tensor) -> Tensor:
        """audio: [B, T] in [-1, 1] at 24 kHz, lengths: [B] int64 samples, at least 1.

        Returns codes [B, F, books] int64, F = ceil(T / samples_per_frame); row b holds
        ceil(lengths[b] / samples_per_frame) frames, what follows is unspecified.
        """
        x, lengths = self.encoder(audio[:, None], lengths)
        x = self.encoder_transformer(x.transpose(1, 2)).transpose(1, 2)
        codes: Tensor = self.quantizer(self.downsample(x, lengths))
        return codes
