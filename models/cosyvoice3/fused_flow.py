"""The flow's estimator on fused kernels, for CUDA.

For one chunk a layer is five launches, norms and gates inside the products. For more, torch's
library multiplies faster, and what stands between is kernels of its own: eight launches.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.kernels.block_attention import BlockRows, block_attention
from voxserve.kernels.gated_norm import gated_norm
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

FEW_ROWS = 128
"""Frames, of both branches, up to which products are those of `voxserve.kernels.modulated`. On an
H200 a solve of 100 took 10.9 ms so and 11.8 with the library, one of 800 took 19.0 and 15.2."""


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
        blocks = estimator.transformer_blocks
        self.blocks = [block for block in blocks if isinstance(block, Block)]
        self.norm_out, self.proj_out = estimator.norm_out, estimator.proj_out
        self.proj = estimator.input_embed.proj.weight
        self.rotary = estimator.rotary_embed
        self.layers = [_layer(block) for block in self.blocks]
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
        embedded = self._embedded(x, step)
        few = embedded.shape[0] * embedded.shape[1] <= FEW_ROWS
        out = self._few(embedded, step) if few else self._many(embedded, step)
        guided_step(x, out.view(-1, BRANCHES, *x.shape[1:]), size, self.given.guidance)
        return x

    def _many(self, stream: Tensor, step: int) -> Tensor:
        """The estimator behind its input [2 B, T, dim], which is overwritten: [2 B, T, mel]."""
        weights = self.weights
        shift, scale = weights.blocks[0].attn_norm.table[step][:2]
        normed = functional.layer_norm(stream, stream.shape[2:], scale, shift, EPS)
        mixed = torch.empty_like(stream)
        last = len(weights.blocks) - 1
        for layer, block in enumerate(weights.blocks):
            _, _, gate, shift, scale, gate_ff = block.attn_norm.table[step]
            self._attend(block.attn.qkv(normed), mixed, layer, step)
            branch = block.attn.to_out[0](mixed)
            gated_norm(stream, branch, gate, scale, shift, normed, EPS)
            if layer < last:
                shift, scale = weights.blocks[layer + 1].attn_norm.table[step][:2]
            else:
                scale, shift = weights.norm_out.table[step]
            gated_norm(stream, block.ff(normed), gate_ff, scale, shift, normed, EPS)
        out: Tensor = weights.proj_out(normed)
        return out

    def _attend(self, qkv: Tensor, mixed: Tensor, layer: int, step: int) -> None:
        block_attention(qkv, mixed, self.given.caches[layer][:, step], self.rows, self.arrived)

    def _few(self, embedded: Tensor, step: int) -> Tensor:
        """The same, [2 B T, mel]."""
        weights, mixed = self.weights, torch.empty_like(embedded)
        stream = enter(embedded.flatten(0, 1), weights.layers[0].qkv_scales[step])
        scales = [*(layer.qkv_scales for layer in weights.layers[1:]), weights.last_scales]
        for number, (layer, following) in enumerate(zip(weights.layers, scales, strict=True)):
            stream = self._layer(layer, number, step, stream, mixed, following[step])
        return normed_linear(stream, weights.last, weights.last_behind[step], EPS)

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
        self._attend(qkv.view(*mixed.shape[:2], -1), mixed, number, step)
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
