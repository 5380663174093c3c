"""The flow's estimator: a transformer over mel frames whose norms follow the solver's time.

Follows `DiT` of CosyVoice (cosyvoice/flow/DiT) with the parameter names of flow.pt. The solver
visits the same few times for every request, so `finish` turns all that depends on time alone into
tables: then a modulated norm is a plain one with a weight and a bias for each step.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.cosyvoice3.config import FlowConfig
from voxserve.models.cosyvoice3.state import BRANCHES, POSITION_KERNEL
from voxserve.nn.attention import tail
from voxserve.nn.transformer import Attend

GROUPS = 16
TIME_WIDTH = 256
TIME_SCALE = 1000
THETA = 10_000
EPS = 1e-6

Rotation = tuple[Tensor, Tensor]


def time_features(times: Tensor) -> Tensor:
    """Sines, then cosines, of times [S] float32 in [0, 1]: [S, 256]."""
    half = TIME_WIDTH // 2
    rates = torch.exp(torch.arange(half, device=times.device) * (-math.log(THETA) / (half - 1)))
    angles = TIME_SCALE * times[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)


class Modulation(nn.Module):
    """Shifts, scales and gates of one layer, one set for each of the solver's steps."""

    table: Tensor

    def __init__(self, dim: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.linear = nn.Linear(dim, parts * dim)

    def finish(self, embedded: Tensor, scales: tuple[int, ...]) -> None:
        """embedded: [S, dim], the activated embeddings of the times. scales: parts that are
        factors around one. The table is [S, parts, dim]."""
        table = self.linear(embedded).unflatten(1, (self.parts, -1))
        table[:, list(scales)] += 1
        del self.linear
        self.register_buffer("table", table, persistent=False)


class SelfAttention(nn.Module):
    """Multi-head attention; only the first head is rotated.

    The published code rotates the first `head` columns of the queries and keys before it splits
    them into heads, and the weights were trained so.
    """

    qkv: nn.Linear

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        inner = config.heads * config.head
        self.split = (3, config.heads, config.head)
        self.to_q = nn.Linear(config.dim, inner)
        self.to_k = nn.Linear(config.dim, inner)
        self.to_v = nn.Linear(config.dim, inner)
        self.to_out = nn.ModuleList([nn.Linear(inner, config.dim)])

    def finish(self) -> None:
        """One product instead of three."""
        parts = (self.to_q, self.to_k, self.to_v)
        width = self.to_q.in_features
        self.qkv = nn.Linear(width, 3 * self.to_q.out_features, device="meta")
        for name in ("weight", "bias"):
            joined = torch.cat([getattr(part, name) for part in parts])
            setattr(self.qkv, name, nn.Parameter(joined, requires_grad=False))
        del self.to_q, self.to_k, self.to_v

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend) -> Tensor:
        """x [B, T, dim] -> the same shape, before the gate."""
        queries, keys, values = self.qkv(x).view(*x.shape[:2], *self.split).unbind(2)
        for part in (queries, keys):
            part[:, :, 0] = rotate_pairs(part[:, :, 0], rotation)
        out: Tensor = self.to_out[0](attend(queries, keys, values).flatten(2))
        return out


def rotate_pairs(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn each pair of neighbours in x [B, T, D] by its angle; cosines and sines [B, T, D / 2]."""
    cosines, sines = rotation
    even, odd = x.view(*cosines.shape, 2).unbind(3)
    turned = torch.stack((even * cosines - odd * sines, odd * cosines + even * sines), dim=3)
    return turned.flatten(2).to(x.dtype)


class FeedForward(nn.Module):
    def __init__(self, dim: int, inner: int) -> None:
        super().__init__()
        first = nn.Sequential(nn.Linear(dim, inner), nn.GELU(approximate="tanh"))
        self.ff = nn.Sequential(first, nn.Identity(), nn.Linear(inner, dim))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.ff(x)
        return out


class Block(nn.Module):
    """Attention and feed-forward, each behind a modulated norm and a gate."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.attn_norm = Modulation(config.dim, 6)
        self.attn = SelfAttention(config)
        self.ff = FeedForward(config.dim, config.dim * config.ff_mult)

    def finish(self, embedded: Tensor) -> None:
        self.attn_norm.finish(embedded, scales=(1, 4))
        self.attn.finish()

    def forward(self, x: Tensor, step: int, rotation: Rotation, attend: Attend) -> Tensor:
        """x [B, T, dim] at the solver's step number `step`."""
        shift, scale, gate, shift_ff, scale_ff, gate_ff = self.attn_norm.table[step]
        width = x.shape[2:]
        y = functional.layer_norm(x, width, scale, shift, EPS)
        x = torch.addcmul(x, gate, self.attn(y, rotation, attend))
        y = functional.layer_norm(x, width, scale_ff, shift_ff, EPS)
        return torch.addcmul(x, gate_ff, self.ff(y))


class TimeEmbedding(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.time_mlp = nn.Sequential(nn.Linear(TIME_WIDTH, dim), nn.SiLU(), nn.Linear(dim, dim))


class PositionConv(nn.Module):
    """Two causal grouped convolutions that tell a frame where it is."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        stages = [nn.Conv1d(dim, dim, POSITION_KERNEL, groups=GROUPS) for _ in range(2)]
        self.conv1 = nn.Sequential(stages[0], nn.Mish())
        self.conv2 = nn.Sequential(stages[1], nn.Mish())

    def forward(self, x: Tensor, before: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, T, dim], before [B, 2, 30, dim], lengths [B] int64 -> (x's shape, new `before`)."""
        y, after = x.transpose(1, 2), []
        for stage, conv in enumerate((self.conv1, self.conv2)):
            y = torch.cat((before[:, stage].transpose(1, 2).to(y.dtype), y), dim=2)
            after.append(tail(y, lengths, POSITION_KERNEL - 1))
            y = conv(y)
        return y.transpose(1, 2), torch.stack(after, dim=1).transpose(2, 3)


class InputEmbedding(nn.Module):
    """The noisy mel and its conditions, projected side by side."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.mel = config.mel
        self.proj = nn.Linear(4 * config.mel, config.dim)
        self.conv_pos_embed = PositionConv(config.dim)

    def conditions(self, given: Tensor) -> Tensor:
        """What the projection makes of conditions [B, T, 3 * mel], and of none: [B, 2, T, dim].

        The same at every step, so computed once.
        """
        weight, bias = self.proj.weight[:, self.mel :], self.proj.bias
        with_them = functional.linear(given, weight, bias)
        return torch.stack((with_them, bias.expand_as(with_them)), dim=1)

    def forward(
        self, x: Tensor, conditions: Tensor, before: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """x [B, T, mel] -> ([2 B, T, dim], the convolutions' new state [2 B, 2, 30, dim])."""
        plain = functional.linear(x, self.proj.weight[:, : self.mel])
        y = (plain[:, None] + conditions).flatten(0, 1)
        position, after = self.conv_pos_embed(y, before, lengths)
        return y + position, after


def frequencies(head: int) -> Tensor:
    """What `Rotary` holds in every checkpoint: [head / 2] float32."""
    return 1.0 / THETA ** (torch.arange(0, head, 2).float() / head)


class Rotary(nn.Module):
    """Angles of positions; the frequencies come with the checkpoint."""

    inv_freq: Tensor

    def __init__(self, head: int) -> None:
        super().__init__()
        self.register_buffer("inv_freq", torch.zeros(head // 2))

    def forward(self, positions: Tensor) -> Rotation:
        """positions [B, T] int64 -> (cosines, sines), [B, T, head / 2] each."""
        angles = positions[..., None] * self.inv_freq
        return angles.cos(), angles.sin()


class Estimator(nn.Module):
    """See the module's docstring. Call `finish` once the weights are there."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.time_embed = TimeEmbedding(config.dim)
        self.input_embed = InputEmbedding(config)
        self.rotary_embed = Rotary(config.head)
        self.transformer_blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm_out = Modulation(config.dim, 2)
        self.proj_out = nn.Linear(config.dim, config.mel)

    @torch.no_grad()
    def finish(self, times: Tensor) -> None:
        """times: [S] float32, where the solver evaluates the estimator."""
        weight = self.proj_out.weight
        features = time_features(times.to(weight.device)).to(weight.dtype)
        embedded = functional.silu(self.time_embed.time_mlp(features))
        for block in self.transformer_blocks:
            assert isinstance(block, Block)
            block.finish(embedded)
        self.norm_out.finish(embedded, scales=(0,))
        del self.time_embed

    def forward(self, x: Tensor, step: int, rotation: Rotation, attends: list[Attend]) -> Tensor:
        """x [2 B, T, dim] from `input_embed` -> velocities [B, 2, T, mel]; one `attend` a layer."""
        for block, attend in zip(self.transformer_blocks, attends, strict=True):
            x = block(x, step, rotation, attend)
        scale, shift = self.norm_out.table[step]
        x = functional.layer_norm(x, x.shape[2:], scale, shift, EPS)
        out: Tensor = self.proj_out(x)
        return out.view(-1, BRANCHES, *out.shape[1:])
