"""The codec's decoder: frames of 16 codes to 24 kHz audio, streaming, exact for any cuts.

Follows `Qwen3TTSTokenizerV2Decoder` of qwen-tts 0.1.1 with the parameter names of its files. Every
layer is causal, so a request's state is the last inputs of each convolution (one flat vector), the
last keys and values of the windowed transformer, and how many frames it has seen. The reference
itself decodes in windows of 300 frames with 25 of context, so it equals this up to frame 300.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.qwen3_tts.config import CodecDecoder
from voxserve.models.qwen3_tts.lm import layer_shape
from voxserve.nn.attention import WindowKv
from voxserve.nn.causal_conv import CausalConv1d, CausalConvTranspose1d, Memory
from voxserve.nn.rvq import centroids, rvq_decode
from voxserve.nn.snake import SnakeBeta
from voxserve.nn.transformer import DecoderLayer, RmsNorm, Rope

DILATIONS = (1, 3, 9)
KERNEL = 7


class ResidualUnit(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.act1 = SnakeBeta(width)
        self.conv1 = CausalConv1d(width, width, KERNEL, dilation=dilation)
        self.act2 = SnakeBeta(width)
        self.conv2 = CausalConv1d(width, width, 1)

    def forward(self, x: Tensor, memory: Memory, columns: int) -> Tensor:
        y = memory.run(self.conv1, self.act1(x), columns)
        return x + memory.run(self.conv2, self.act2(y), columns)


class UpsampleBlock(nn.Module):
    """Snake, transposed convolution that halves the channels, three residual units."""

    def __init__(self, width: int, rate: int) -> None:
        super().__init__()
        self.rate = rate
        half = width // 2
        up = CausalConvTranspose1d(width, half, 2 * rate, rate)
        units = [ResidualUnit(half, dilation) for dilation in DILATIONS]
        self.block = nn.ModuleList([SnakeBeta(width), up, *units])

    def forward(self, x: Tensor, memory: Memory, columns: int) -> Tensor:
        snake, up, *units = list(self.block)
        assert isinstance(up, CausalConvTranspose1d)
        x = memory.run(up, snake(x), columns)
        for unit in units:
            x = unit(x, memory, columns * self.rate)
        return x


class ConvNeXt(nn.Module):
    """Depthwise causal convolution and a pointwise MLP, scaled and added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dwconv = CausalConv1d(width, width, KERNEL, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.pwconv1 = nn.Linear(width, 4 * width)
        self.pwconv2 = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, memory: Memory, columns: int) -> Tensor:
        y = self.norm(memory.run(self.dwconv, x, columns).transpose(1, 2))
        y = self.gamma * self.pwconv2(functional.gelu(self.pwconv1(y)))
        out: Tensor = x + y.transpose(1, 2)
        return out


class EarlyBlock(nn.ModuleList):
    """Transposed convolution without overlap, then ConvNeXt; members 0 and 1 of a list."""

    def __init__(self, width: int, rate: int) -> None:
        self.rate = rate
        up, block = CausalConvTranspose1d(width, width, rate, rate), ConvNeXt(width)
        super().__init__([up, block])

    def forward(self, x: Tensor, memory: Memory, columns: int) -> Tensor:
        up, block = list(self)
        assert isinstance(up, CausalConvTranspose1d)
        out: Tensor = block(memory.run(up, x, columns), memory, columns * self.rate)
        return out


class Codebook(nn.Module):
    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self.embedding_sum = nn.Parameter(torch.zeros(codes, width))
        self.cluster_usage = nn.Parameter(torch.ones(codes))


class CodebookLayer(nn.Module):
    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self._codebook = Codebook(codes, width)


class CodebookLayers(nn.Module):
    def __init__(self, books: int, codes: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(CodebookLayer(codes, width) for _ in range(books))


class Quantizer(nn.Module):
    """Some codebooks whose vectors are added up and projected."""

    books: Tensor

    def __init__(self, books: int, codes: int, width: int) -> None:
        super().__init__()
        self.vq = CodebookLayers(books, codes, width // 2)
        self.output_proj = nn.Conv1d(width // 2, width, 1, bias=False)

    def finish(self) -> None:
        """Divide the stored sums by their counts, once the weights are there."""
        parts = [layer.get_submodule("_codebook") for layer in self.vq.layers]
        vectors = [centroids(part.embedding_sum, part.cluster_usage) for part in parts]  # type: ignore[arg-type]
        del self.vq
        self.register_buffer("books", torch.stack(vectors).detach(), persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        """codes [B, F, K] int64 -> [B, C, F]."""
        out: Tensor = self.output_proj(rvq_decode(codes, self.books).transpose(1, 2))
        return out


class SplitQuantizer(nn.Module):
    def __init__(self, config: CodecDecoder) -> None:
        super().__init__()
        self.rvq_first = Quantizer(1, config.codes, config.code_width)
        self.rvq_rest = Quantizer(config.codebooks - 1, config.codes, config.code_width)

    def forward(self, codes: Tensor) -> Tensor:
        out: Tensor = self.rvq_first(codes[:, :, :1]) + self.rvq_rest(codes[:, :, 1:])
        return out


class WindowTransformer(nn.Module):
    """Decoder layers that look back over a window of frames."""

    def __init__(self, config: CodecDecoder) -> None:
        super().__init__()
        body = config.body
        shape = layer_shape(body, qk_norm=False, layer_scale=True)
        self.window = config.window
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(body.layers))
        self.norm = RmsNorm(body.hidden, body.eps)
        self.rope = Rope(body.head, body.theta)
        self.input_proj = nn.Linear(config.latent, body.hidden)
        self.output_proj = nn.Linear(body.hidden, config.latent)

    def forward(
        self, x: Tensor, past: Tensor, seen: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """x [B, F, latent], past [B, layers, 2, window - 1, H, D] -> (the same two, advanced)."""
        x = self.input_proj(x)
        places = seen[:, None] + torch.arange(x.shape[1], device=x.device)
        rope = self.rope(places, x.dtype)
        after = []
        for i, layer in enumerate(self.layers):
            attend = WindowKv(past[:, i], seen, lengths, self.window)
            x = layer(x, rope, attend)
            after.append(attend.after)
        return self.output_proj(self.norm(x)), torch.stack(after, dim=1)


class Decoder(nn.Module):
    """See the module's docstring. Call `finish` once the weights are there."""

    def __init__(self, config: CodecDecoder) -> None:
        super().__init__()
        self.config = config
        self.quantizer = SplitQuantizer(config)
        self.pre_conv = CausalConv1d(config.code_width, config.latent, 3)
        self.pre_transformer = WindowTransformer(config)
        self.upsample = nn.ModuleList(EarlyBlock(config.latent, f) for f in config.early_rates)
        width = config.width
        blocks = [UpsampleBlock(width >> i, rate) for i, rate in enumerate(config.rates)]
        last = width >> len(config.rates)
        self.decoder = nn.ModuleList(
            [
                CausalConv1d(config.latent, width, KERNEL),
                *blocks,
                SnakeBeta(last),
                CausalConv1d(last, 1, KERNEL),
            ]
        )

    def finish(self) -> None:
        self.quantizer.rvq_first.finish()
        self.quantizer.rvq_rest.finish()

    def forward(
        self, codes: Tensor, flat: Tensor, past: Tensor, seen: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Decode one chunk and give the state behind its real frames.

        codes: [B, F, K] int64 in range. flat: [B, N] convolution states; past: [B, layers, 2,
        window - 1, H, D]; seen: [B] int64, frames decoded before; lengths: [B] int64, real frames
        of this chunk (the audio of the frames behind them is unspecified).
        Returns (audio [B, F * samples_per_frame] in [-1, 1], flat, past).
        """
        memory = Memory(flat, lengths)
        x = memory.run(self.pre_conv, self.quantizer(codes), 1).transpose(1, 2)
        x, past = self.pre_transformer(x, past, seen, lengths)
        x, columns = x.transpose(1, 2), 1
        for early, rate in zip(self.upsample, self.config.early_rates, strict=True):
            x = early(x, memory, columns)
            columns *= rate
        first, *blocks, snake, last = list(self.decoder)
        assert isinstance(first, CausalConv1d) and isinstance(last, CausalConv1d)
        x = memory.run(first, x, columns)
        for block, rate in zip(blocks, self.config.rates, strict=True):
            x = block(x, memory, columns)
            columns *= rate
        x = memory.run(last, snake(x), columns)
        return x[:, 0].clamp(-1.0, 1.0), memory.after, past
