"""The flow's estimator on fused kernels, for CUDA: five launches a layer."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from voxserve.kernels.block_attention import BlockRows, block_attention
from voxserve.kernels.guided_step import conditioned, guided_step
from voxserve.kernels.modulated import (
    Behind,
    Modulated,
    enter,
    gated_linear,
    normed_linear,
    table,
)
from voxserve.kernels.position_conv import group_weight, position_conv
from voxserve.models.cosyvoice3.dit import EPS, GROUPS, Block, Estimator
from voxserve.models.cosyvoice3.flow import Flow
from voxserve.models.cosyvoice3.solver import CODE_FRAMES, Given
from voxserve.models.cosyvoice3.state import BRANCHES


@dataclass(frozen=True, slots=True)
class Layer:
    """A block of the estimator. qkv, widen [N, C] stand behind norms: of each step their scale [C]
    and what they make of it. out, narrow [C, K], their biases and, of each step, gates [C]."""

    qkv: Tensor
    qkv_scales: Tensor
    qkv_behind: list[Behind]
    out: nn.Linear
    out_gates: Tensor
    widen: Tensor
    widen_scales: Tensor
    widen_behind: list[Behind]
    narrow: nn.Linear
    narrow_gates: Tensor


class FusedEstimator:
    """The weights in the form that the kernels take."""

    @torch.no_grad()
    def __init__(self, estimator: Estimator) -> None:
        self.proj = estimator.input_embed.proj.weight
        self.rotary = estimator.rotary_embed
        blocks = estimator.transformer_blocks
        self.layers = [_layer(block) for block in blocks if isinstance(block, Block)]
        last = estimator.proj_out
        self.last = last.weight
        self.last_scales, shifts = estimator.norm_out.table.unbind(1)
        self.last_behind = table(last.weight, last.bias, self.last_scales, shifts)
        position = estimator.input_embed.conv_pos_embed
        self.convs: list[tuple[Tensor, Tensor]] = []
        for stage in (position.conv1, position.conv2):
            conv = stage[0]
            assert isinstance(conv, nn.Conv1d) and conv.bias is not None
            self.convs.append((group_weight(conv.weight, GROUPS), conv.bias))


def _layer(block: Block) -> Layer:
    shift, scale, gate, shift_ff, scale_ff, gate_ff = block.attn_norm.table.unbind(1)
    first = block.ff.ff[0]
    assert isinstance(first, nn.Sequential)
    qkv, out, widen, narrow = block.attn.qkv, block.attn.to_out[0], first[0], block.ff.ff[2]
    assert isinstance(out, nn.Linear) and isinstance(widen, nn.Linear)
    assert isinstance(narrow, nn.Linear)
    return Layer(
        qkv.weight,
        scale,
        table(qkv.weight, qkv.bias, scale, shift),
        out,
        gate,
        widen.weight,
        scale_ff,
        table(widen.weight, widen.bias, scale_ff, shift_ff),
        narrow,
        gate_ff,
    )


class FusedRun:
    """`solver.Run`: equals `PlainRun` up to rounding."""

    def __init__(self, weights: FusedEstimator, given: Given) -> None:
        self.weights = weights
        self.given = given
        self.frames = given.count * CODE_FRAMES
        cosines, sines = weights.rotary(given.positions)
        angles = torch.stack((cosines, sines))
        pages, keep = given.table.contiguous(), given.keep.contiguous()
        self.rows = BlockRows(pages, given.first, self.frames, keep, angles)
        heads = given.caches[0].shape[-2] * keep.numel() * BRANCHES
        self.arrived = torch.zeros(heads, dtype=torch.int32, device=keep.device)
        self.before = given.conv.contiguous()
        self.after = torch.empty_like(self.before)

    def advance(self, x: Tensor, step: int, size: float) -> Tensor:
        """See `solver.Run`."""
        weights, embedded = self.weights, self._embedded(x, step)
        mixed = torch.empty_like(embedded)
        stream = enter(embedded.flatten(0, 1), weights.layers[0].qkv_scales[step])
        scales = [*(layer.qkv_scales for layer in weights.layers[1:]), weights.last_scales]
        for number, (layer, following) in enumerate(zip(weights.layers, scales, strict=True)):
            stream = self._layer(layer, number, step, stream, mixed, following[step])
        out = normed_linear(stream, weights.last, weights.last_behind[step], EPS)
        velocities = out.view(-1, BRANCHES, *x.shape[1:])
        guided_step(x, velocities, size, self.given.guidance)
        return x

    def _layer(
        self,
        layer: Layer,
        number: int,
        step: int,
        stream: Modulated,
        mixed: Tensor,
        following: Tensor,
    ) -> Modulated:
        """One layer. mixed [2 B, T, dim] is overwritten; following [dim]: the scale behind it."""
        qkv = normed_linear(stream, layer.qkv, layer.qkv_behind[step], EPS)
        qkv = qkv.view(*mixed.shape[:2], -1)
        block_attention(qkv, mixed, self.given.caches[number][:, step], self.rows, self.arrived)
        stream = _gated(
            mixed.flatten(0, 1), layer.out, layer.out_gates[step], stream, layer.widen_scales[step]
        )
        inner = normed_linear(stream, layer.widen, layer.widen_behind[step], EPS, gelu=True)
        return _gated(inner, layer.narrow, layer.narrow_gates[step], stream, following)

    def _embedded(self, x: Tensor, step: int) -> Tensor:
        """x [B, T, mel] with its conditions and where it is: [2 B, T, dim]."""
        y = conditioned(x, self.weights.proj, self.given.conditions)
        first, second = torch.empty_like(y), torch.empty_like(y)
        for stage, (source, out, residual) in enumerate(((y, first, None), (first, second, y))):
            weight, bias = self.weights.convs[stage]
            before, after = self.before[:, step, :, stage], self.after[:, step, :, stage]
            position_conv(source, before, after, weight, bias, self.frames, out, residual)
        return second


def _gated(
    a: Tensor, linear: nn.Linear, gate: Tensor, stream: Modulated, scale: Tensor
) -> Modulated:
    return gated_linear(a, linear.weight, linear.bias, gate, stream, scale)


def fuse(flow: Flow) -> None:
    """Let a finished flow on a CUDA device run so from now on."""
    flow.runs = partial(FusedRun, FusedEstimator(flow.decoder.estimator))
