"""The vocoder's decoder on fused kernels, for CUDA: what `Vocoder` computes in plain torch.

Channels last; every convolution with a Snake behind it is one product. The state has the size of
the plain one's but another order, so one process uses one of the two.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.kernels.codec_state import Part, StateLayout, begin, end
from voxserve.kernels.conv_gemm import ConvWeights, conv_gemm, pack_conv
from voxserve.kernels.padded import Padded
from voxserve.kernels.snake import SnakeWeights
from voxserve.kernels.spread import gather_leaky, spread
from voxserve.kernels.window_attention import StepRows
from voxserve.models.cosyvoice3.config import VocoderConfig
from voxserve.models.cosyvoice3.state import POST_KERNEL, UPSAMPLE_TAPS
from voxserve.models.cosyvoice3.vocoder import ResidualBlock, Vocoder, Window
from voxserve.models.cosyvoice3.weight_norm import NormedConv, UpsampleConv
from voxserve.nn.snake import Snake
from voxserve.plugin import State

LAST_SLOPE = 0.01


@dataclass(frozen=True, slots=True)
class BranchWeights:
    """A residual block. entry: its first Snake as [2, C]; the lists hold a pair for each
    dilation: convolution, the Snake behind it; None behind the last."""

    entry: Tensor
    dilated: list[tuple[ConvWeights, SnakeWeights]]
    plain: list[tuple[ConvWeights, SnakeWeights | None]]


@dataclass(frozen=True, slots=True)
class StageWeights:
    """One upsampling, with what the excitation adds to it and the branches behind."""

    up: ConvWeights
    through: SnakeWeights
    down: nn.Conv1d
    skip: int
    source: BranchWeights
    branches: list[BranchWeights]


def parts_of(config: VocoderConfig) -> list[Part]:
    """The buffers in the order of use: of each stage the input and the output of its upsampling,
    then the inputs of the source's and the branches' convolutions; of the last convolution."""
    parts, width, columns = [], config.base, 1
    blocks = list(zip(config.res_kernels, config.res_dilations, strict=True))
    for stage, rate in enumerate(config.rates):
        parts.append(Part(UPSAMPLE_TAPS - 1, width, columns))
        width, columns = width // 2, columns * rate
        parts.append(Part(int(stage == len(config.rates) - 1), width, columns))
        source = (config.source_kernels[stage], config.source_dilations[stage])
        for kernel, dilations in (source, *blocks):
            for dilation in dilations:
                parts.append(Part((kernel - 1) * dilation, width, columns))
                parts.append(Part(kernel - 1, width, columns))
    return [*parts, Part(POST_KERNEL - 1, width, columns)]


class FusedVocoder:
    """The weights packed for the kernels. Widths are powers of two from 16 on."""

    def __init__(self, vocoder: Vocoder) -> None:
        self.config = vocoder.config
        self.conv_pre = vocoder.conv_pre
        self.post = _conv(vocoder.conv_post)
        self.stages: list[StageWeights] = []
        count = len(self.config.res_kernels)
        for stage, up in enumerate(vocoder.ups):
            down = vocoder.source_downs[stage]
            blocks = vocoder.resblocks[count * stage : count * (stage + 1)]
            assert isinstance(up, UpsampleConv) and isinstance(down, nn.Conv1d)
            none = torch.zeros(len(up.bias) // up.rate, device=up.bias.device)
            self.stages.append(
                StageWeights(
                    _conv(up, up.rate),
                    SnakeWeights(none, none),
                    down,
                    vocoder.strides[0] - vocoder.strides[stage],
                    _branch(vocoder.source_resblocks[stage]),
                    [_branch(block) for block in blocks],
                )
            )
        self._layouts: dict[tuple[int, int], StateLayout] = {}

    def decode(self, given: Window, state: State) -> Tensor:
        """`vocoder.Decode`, 120 columns a frame. Call once outside a capture for every shape."""
        config, conv = self.config, state["vocoder.conv"]
        # Frames are counted by the vocoder; the kernel would count them once more.
        counted = torch.zeros_like(state["vocoder.frame"])
        rows = StepRows(given.slots, given.ready, given.fresh, counted)
        layout = self._layout(len(given.mel), given.mel.shape[1], conv)
        arena = conv.new_empty(layout.size)
        buffers = iter(layout.buffers(arena))
        # No codes here: only the contexts are put into the arena.
        nothing = given.slots.new_zeros(len(given.mel), 0, 1)
        begin(layout, arena, conv, rows, nothing, conv.new_zeros(1, 1, config.base))
        x = self.conv_pre.ahead(given.mel.transpose(1, 2))
        source = next(buffers)
        source.step.copy_(functional.leaky_relu(x, config.slope).transpose(1, 2))
        for stage, weights in enumerate(self.stages):
            last = stage == len(self.stages) - 1
            parts = self._stage(source, weights, given, buffers, late=last)
            source = next(buffers)
            gather_leaky(parts, LAST_SLOPE if last else config.slope, source)
        out = torch.empty(
            source.rows, source.steps, config.fft + 2, device=conv.device, dtype=torch.float32
        )
        conv_gemm(source, self.post, raw=out)
        end(layout, arena, conv, rows)
        return out.transpose(1, 2)

    def _stage(
        self,
        source: Padded,
        weights: StageWeights,
        given: Window,
        buffers: Iterator[Padded],
        *,
        late: bool,
    ) -> list[Tensor]:
        """What the branches behind one upsampling give, [B, T, C] each."""
        up = next(buffers)
        conv_gemm(source, weights.up, activated=(weights.through, up))
        lines = weights.down(given.lines[..., weights.skip :])[..., : up.steps]
        lines = lines.transpose(1, 2).contiguous()
        own = list(islice(buffers, 2 * len(weights.source.plain)))
        flat = Padded(lines.view(-1, up.channels), up.rows, 0, up.steps)
        spread(flat, [(weights.source.entry, own[0])])
        added = _run(weights.source, own, lines)
        theirs = [list(islice(buffers, 2 * len(each.plain))) for each in weights.branches]
        raw = torch.empty_like(lines)
        entries = [(w.entry, own[0]) for w, own in zip(weights.branches, theirs, strict=True)]
        spread(up, entries, source=added, raw=raw, fresh=given.fresh if late else None)
        return [_run(w, own, raw) for w, own in zip(weights.branches, theirs, strict=True)]

    def _layout(self, rows: int, frames: int, conv: Tensor) -> StateLayout:
        key = (rows, frames)
        if key not in self._layouts:
            parts, device = parts_of(self.config), str(conv.device)
            self._layouts[key] = StateLayout(parts, rows, frames, dtype=conv.dtype, device=device)
        return self._layouts[key]


def _run(weights: BranchWeights, buffers: list[Padded], raw: Tensor) -> Tensor:
    """One residual block over `raw` [B, T, C], whose first buffer is filled."""
    out = torch.empty_like(raw)
    for i, (dilated, plain) in enumerate(zip(weights.dilated, weights.plain, strict=True)):
        conv_gemm(buffers[2 * i], dilated[0], activated=(dilated[1], buffers[2 * i + 1]))
        following = None if plain[1] is None else (plain[1], buffers[2 * i + 2])
        conv_gemm(buffers[2 * i + 1], plain[0], residual=raw, raw=out, activated=following)
        raw = out
    return out


def _branch(block: nn.Module) -> BranchWeights:
    assert isinstance(block, ResidualBlock)
    first = [_snake(snake) for snake in block.activations1]
    second = [_snake(snake) for snake in block.activations2]
    dilated, plain = [[_conv(conv) for conv in convs] for convs in (block.convs1, block.convs2)]
    behind: list[SnakeWeights | None] = [*first[1:], None]
    return BranchWeights(
        torch.stack((first[0].frequency, first[0].size)),
        list(zip(dilated, second, strict=True)),
        list(zip(plain, behind, strict=True)),
    )


def _snake(snake: nn.Module) -> SnakeWeights:
    assert isinstance(snake, Snake)
    frequency = snake.alpha.float().flatten()
    return SnakeWeights(frequency, 1 / (frequency + snake.eps))


def _conv(conv: nn.Module, up: int = 1) -> ConvWeights:
    assert isinstance(conv, NormedConv)
    bias = conv.bias.float()[: len(conv.bias) // up].contiguous()
    return ConvWeights(pack_conv(conv.weight), bias, conv.weight.shape[2], conv.dilation, up)


def fuse(vocoder: Vocoder) -> None:
    """Let a loaded vocoder on a CUDA device run so from now on.

    One frame more than the chunk's own keeps every stage a whole number of columns a frame.
    """
    vocoder.decode = FusedVocoder(vocoder).decode
    vocoder.spare_frames = 1
