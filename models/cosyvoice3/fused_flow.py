"""The flow's estimator on fused kernels, for CUDA: eight launches a layer."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.kernels.block_attention import BlockRows, block_attention
from voxserve.kernels.gated_norm import gated_norm
from voxserve.kernels.position_conv import group_weight, position_conv
from voxserve.models.cosyvoice3.dit import EPS, GROUPS, Block, Estimator
from voxserve.models.cosyvoice3.flow import Flow
from voxserve.models.cosyvoice3.solver import CODE_FRAMES, Given
from voxserve.models.cosyvoice3.state import BRANCHES


class FusedEstimator:
    """The weights in the form that the kernels take."""

    def __init__(self, estimator: Estimator) -> None:
        self.embed = estimator.input_embed
        self.rotary = estimator.rotary_embed
        self.norm_out = estimator.norm_out
        self.proj_out = estimator.proj_out
        self.blocks = [block for block in estimator.transformer_blocks if isinstance(block, Block)]
        position = self.embed.conv_pos_embed
        self.convs: list[tuple[Tensor, Tensor]] = []
        for stage in (position.conv1, position.conv2):
            conv = stage[0]
            assert isinstance(conv, nn.Conv1d) and conv.bias is not None
            self.convs.append((group_weight(conv.weight, GROUPS), conv.bias))


class FusedRun:
    """`solver.Run`: equals `PlainRun` up to rounding."""

    def __init__(self, weights: FusedEstimator, given: Given) -> None:
        self.weights = weights
        self.given = given
        self.frames = given.count * CODE_FRAMES
        cosines, sines = weights.rotary(given.positions)
        angles = torch.stack((cosines, sines))
        table, keep = given.table.contiguous(), given.keep.contiguous()
        self.rows = BlockRows(table, given.first, self.frames, keep, angles)
        self.before = given.conv.contiguous()
        self.after = torch.empty_like(self.before)

    def velocities(self, x: Tensor, step: int) -> Tensor:
        """See `solver.Run`."""
        weights, stream = self.weights, self._embedded(x, step)
        shift, scale = weights.blocks[0].attn_norm.table[step][:2]
        normed = functional.layer_norm(stream, stream.shape[2:], scale, shift, EPS)
        mixed = torch.empty_like(stream)
        last = len(weights.blocks) - 1
        for layer, block in enumerate(weights.blocks):
            _, _, gate, shift, scale, gate_ff = block.attn_norm.table[step]
            qkv = block.attn.qkv(normed)
            block_attention(qkv, mixed, self.given.caches[layer][:, step], self.rows)
            branch = block.attn.to_out[0](mixed)
            gated_norm(stream, branch, gate, scale, shift, normed, EPS)
            if layer < last:
                shift, scale = weights.blocks[layer + 1].attn_norm.table[step][:2]
            else:
                scale, shift = weights.norm_out.table[step]
            gated_norm(stream, block.ff(normed), gate_ff, scale, shift, normed, EPS)
        out: Tensor = weights.proj_out(normed)
        return out.view(-1, BRANCHES, *out.shape[1:])

    def _embedded(self, x: Tensor, step: int) -> Tensor:
        """x [B, T, mel] with its conditions and where it is: [2 B, T, dim]."""
        embed = self.weights.embed
        plain = functional.linear(x, embed.proj.weight[:, : embed.mel])
        y = (plain[:, None] + self.given.conditions).flatten(0, 1)
        first, second = torch.empty_like(y), torch.empty_like(y)
        for stage, (source, out, residual) in enumerate(((y, first, None), (first, second, y))):
            weight, bias = self.weights.convs[stage]
            before, after = self.before[:, step, :, stage], self.after[:, step, :, stage]
            position_conv(source, before, after, weight, bias, self.frames, out, residual)
        return second


def fuse(flow: Flow) -> None:
    """Let a finished flow on a CUDA device run so from now on."""
    flow.runs = partial(FusedRun, FusedEstimator(flow.decoder.estimator))
