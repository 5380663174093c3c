"""The codec's decoder out of fused kernels: what `codec.Decoder` computes, on the slots in place.

Its state has the shapes of the reference's but other orders, so one process uses one of the two:
a convolution's state lies column by column; the window is a ring (`window_attention`); and of the
last convolution the products with its taps are kept. `from_reference` turns one into the other.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from voxserve.kernels.codec_linear import codec_linear
from voxserve.kernels.codec_state import StateLayout, begin, end
from voxserve.kernels.conv_gemm import conv_gemm
from voxserve.kernels.depthwise_norm import depthwise_norm
from voxserve.kernels.last_conv import last_conv
from voxserve.kernels.padded import Padded
from voxserve.kernels.residual_unit import LAST_COLUMNS, PARTS, residual_unit
from voxserve.kernels.window_attention import StepRows, window_attention
from voxserve.models.qwen3_tts.codec import DILATIONS, Decoder
from voxserve.models.qwen3_tts.config import CodecDecoder
from voxserve.models.qwen3_tts.fused_weights import (
    CONVNEXT_EPS,
    BlockWeights,
    EarlyWeights,
    fuse,
    parts_of,
)

State = Mapping[str, Tensor]


class FusedDecoder:
    """A loaded `Decoder` packed for the kernels; needs CUDA, or Triton's interpreter.

    Raises ValueError for sizes that the kernels do not have.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.config = decoder.config
        _check(self.config)
        self.weights = fuse(decoder)
        self._layouts: dict[tuple[int, int], StateLayout] = {}

    def decode(
        self,
        codes: Tensor,
        rows: StepRows,
        conv: Tensor,
        window: Tensor,
    ) -> Tensor:
        """Decode one chunk and leave the state behind its real frames in the slots.

        codes: [B, F, K] int64, clamped into range. rows: slots, lengths, fresh, and `seen` of all
        slots. conv: [slots + 1, N]; window: [slots + 1, layers, 2, W - 1, H, D]. State is updated
        in place; rows that share a slot (padding) leave it finite but otherwise unspecified.
        Returns audio [B, F * samples_per_frame] float32 in [-1, 1], unspecified behind a row's
        length. Call once outside a capture for every shape that is to be captured.
        """
        count, frames, _ = codes.shape
        layout = self._layout(count, frames)
        arena = conv.new_empty(layout.size)
        buffers = layout.buffers(arena)
        begin(layout, arena, conv, rows, codes, self.weights.vectors)
        x = self._transform(buffers[0], rows, window)
        early = len(self.config.early_rates)
        for i, part in enumerate(self.weights.early):
            last = i + 1 == early
            x = _upsample(x, part, buffers[1 + i], buffers[1 + early] if last else None)
        products = self._vocode(buffers[1 + early :])
        audio = torch.empty(count, products.steps, device=codes.device, dtype=torch.float32)
        last_conv(products, self.weights.last_bias, audio)
        end(layout, arena, conv, rows)
        return audio

    def chunk(
        self, codes: Tensor, slots: Tensor, lengths: Tensor, fresh: Tensor, state: State
    ) -> Tensor:
        """`decode` over the rows of state that `limits.state` declares."""
        rows = StepRows(slots, lengths, fresh, state["codec.seen"])
        return self.decode(codes, rows, state["codec.conv"], state["codec.window"])

    def from_reference(self, conv: Tensor, window: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """The reference's state, [B, N] and [B, layers, 2, W - 1, H, D], as `decode` takes it.

        seen: [B] int64, frames behind which it stands.
        """
        used, parts = 0, []
        for part in parts_of(self.config)[:-1]:
            size = part.left * part.channels
            flat = conv[:, used : used + size]
            parts.append(flat.view(-1, part.channels, part.left).transpose(1, 2).flatten(1))
            used += size
        taps = self.weights.blocks[-1].units[-1].last
        assert taps is not None
        tail = conv[:, used:].view(len(conv), taps.shape[1], -1).transpose(1, 2)
        products = (tail.float() @ taps[:LAST_COLUMNS].float().T).flatten(1).view(conv.dtype)
        rest = conv.new_zeros(len(conv), conv.shape[1] - used - products.shape[1])
        kept = window.shape[3]
        place = torch.arange(kept, device=window.device)
        # position p lies at p % kept; right-aligned column j holds p = seen - kept + j
        source = ((place - seen[:, None]) % kept).view(-1, 1, 1, kept, 1, 1)
        ring = window.gather(3, source.expand_as(window))
        return torch.cat((*parts, products, rest), dim=1), ring

    def _layout(self, rows: int, frames: int) -> StateLayout:
        key = (rows, frames)
        if key not in self._layouts:
            vectors = self.weights.vectors
            self._layouts[key] = StateLayout(
                parts_of(self.config), rows, frames, dtype=vectors.dtype, device=str(vectors.device)
            )
        return self._layouts[key]

    def _transform(self, src: Padded, rows: StepRows, window: Tensor) -> Padded:
        """[B, 2 + F, C] of summed vectors -> the residual stream behind the last layer."""
        body = self.config.body
        inner = body.heads * body.head
        x = _plain(src, body.hidden)
        conv_gemm(src, self.weights.pre, raw=x.data)
        for i, layer in enumerate(self.weights.layers):
            qkv = _plain(x, 3 * inner)
            codec_linear(x, layer.qkv, qkv)
            mixed = _plain(x, inner)
            window_attention(qkv.whole, mixed.whole, window, i, rows, self.weights.frequencies)
            codec_linear(mixed, layer.out, x, residual=x)
            middle = _plain(x, layer.down.weight.shape[1])
            codec_linear(x, layer.gate_up, middle)
            codec_linear(middle, layer.down, x, residual=x)
        return x

    def _vocode(self, buffers: list[Padded]) -> Padded:
        """The convolutions from the latent width to one channel; `buffers` in the order of use.

        Returns the last one's products.
        """
        src, *later = buffers
        blocks = self.weights.blocks
        conv_gemm(src, self.weights.first, activated=(blocks[0].entry, later[0]))
        for block in blocks:
            src, *later = later
            _block(src, block, later[: len(DILATIONS) + 1])
            later = later[len(DILATIONS) :]
        return later[0]


def _check(config: CodecDecoder) -> None:
    widths = [config.width >> i for i in range(len(config.rates) + 1)]
    if not config.early_rates or not config.rates or widths[-1] not in PARTS:
        raise ValueError(f"fused codec: the last width is {widths[-1]}, must be one of {[*PARTS]}")
    sizes = (*widths, config.latent, config.body.hidden, config.body.inner, config.code_width)
    odd = [size for size in sizes if size % 64 and size not in PARTS]
    if odd or config.body.heads != config.body.kv_heads:
        raise ValueError(f"fused codec: widths {odd} are no multiples of 64, or heads are grouped")


def _plain(like: Padded, channels: int) -> Padded:
    """An unfilled buffer without left context."""
    data = like.data.new_empty(like.rows * like.steps, channels)
    return Padded(data, like.rows, 0, like.steps)


def _upsample(x: Padded, weights: EarlyWeights, buffer: Padded, out: Padded | None) -> Padded:
    """Upsample x into `buffer`, then its ConvNeXt block into `out` or a new buffer."""
    codec_linear(x, weights.up, buffer)
    normed = _plain(buffer, buffer.channels)
    depthwise_norm(buffer, weights.depthwise, weights.depthwise_bias, CONVNEXT_EPS, normed)
    wide = _plain(buffer, weights.widen.weight.shape[0])
    codec_linear(normed, weights.widen, wide)
    out = out or _plain(buffer, buffer.channels)
    codec_linear(wide, weights.narrow, out, residual=buffer)
    return out


def _block(src: Padded, weights: BlockWeights, buffers: list[Padded]) -> None:
    """A block of the vocoder. buffers: the inputs of its units, then that of what follows."""
    first, *after = buffers
    raw = src.data.new_empty(src.rows, first.steps, first.channels)
    conv_gemm(src, weights.up, raw=raw, activated=(weights.inside, first))
    for unit, x, out in zip(weights.units, buffers, after, strict=False):
        following = None if out is after[-1] else raw
        if x.channels in PARTS:
            residual_unit(x, unit, raw, raw=following, out=out)
        else:
            middle = _plain(x, x.channels)
            conv_gemm(x, unit.first, activated=(unit.inner, middle))
            conv_gemm(middle, unit.second, residual=raw, raw=following, activated=(unit.outer, out))
