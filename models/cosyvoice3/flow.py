"""From codes to mel frames: flow matching, block by block, exact for any grouping of the blocks.

Follows `CausalMaskedDiffWithDiT` and `CausalConditionalCFM` of CosyVoice in their streaming form
with the parameter names of flow.pt. A frame sees all frames up to the end of its own block of 50,
counted from the first frame of the prompt, so a block that is done never changes: its keys and
values stay in a page, and a block that follows reads them there. The noise that the solver starts
from is one fixed table, indexed by the frame.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.cosyvoice3.config import FlowConfig
from voxserve.models.cosyvoice3.dit import Estimator
from voxserve.models.cosyvoice3.solver import CODE_FRAMES, Given, PlainRun, Run, solver_grid
from voxserve.models.cosyvoice3.state import BLOCK_FRAMES
from voxserve.plugin import State

BLOCK_CODES = BLOCK_FRAMES // CODE_FRAMES
LEFT_CODES = 2
"""Codes before a block that its token encoder looks back to."""
NOISE_FRAMES = 15_000


class LookAhead(nn.Module):
    """The token encoder: one convolution that looks three codes ahead, one that looks back."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(config.mel, config.lookahead_channels, config.lookahead + 1)
        self.conv2 = nn.Conv1d(config.lookahead_channels, config.mel, LEFT_CODES + 1)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        """x [B, 2 + T + 3, mel], zeros where there is no code; before [B, 2] bool: whether the
        first two exist. Returns [B, T, mel]."""
        y = functional.leaky_relu(self.conv1(x.transpose(1, 2)))
        y[:, :, :LEFT_CODES] *= before[:, None]
        y = self.conv2(y).transpose(1, 2)
        out: Tensor = y + x[:, LEFT_CODES : LEFT_CODES + y.shape[1]]
        return out


class Solver(nn.Module):
    """Only holds the estimator, under its published name."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.estimator = Estimator(config)


class Flow(nn.Module):
    """See the module's docstring. Call `finish` once the weights are there."""

    noise: Tensor
    sizes: list[float]

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.config = config
        self.input_embedding = nn.Embedding(config.vocabulary, config.mel)
        self.spk_embed_affine_layer = nn.Linear(config.speaker, config.mel)
        self.pre_lookahead_layer = LookAhead(config)
        self.decoder = Solver(config)
        self.runs: Callable[[Given], Run] = partial(PlainRun, self.decoder.estimator)

    def finish(self) -> None:
        """Make what is fixed: the noise, and all that depends on the solver's times alone."""
        times, self.sizes = solver_grid(self.config.steps)
        self.decoder.estimator.finish(times)
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(1, self.config.mel, NOISE_FRAMES, generator=generator)
        noise = noise[0].T.contiguous().to(self.input_embedding.weight.device)
        self.register_buffer("noise", noise, persistent=False)

    def speaker(self, vector: Tensor) -> Tensor:
        """The condition [B, mel] that a speaker vector [B, 192] makes."""
        weight = self.spk_embed_affine_layer.weight
        out: Tensor = self.spk_embed_affine_layer(functional.normalize(vector).to(weight.dtype))
        return out

    def encode(self, codes: Tensor, known: Tensor) -> Tensor:
        """codes, known [B, 2 + T + 3] -> what the estimator is given of them, [B, 2 T, mel]."""
        x = self.input_embedding(codes.clamp(0, self.config.vocabulary - 1)) * known[..., None]
        y: Tensor = self.pre_lookahead_layer(x, known[:, :LEFT_CODES])
        return y.repeat_interleave(CODE_FRAMES, dim=1)

    def run(
        self,
        codes: Tensor,
        known: Tensor,
        cond: Tensor,
        speaker: Tensor,
        count: Tensor,
        first_block: Tensor,
        table: Tensor,
        keep: Tensor,
        conv: Tensor,
        state: State,
    ) -> tuple[Tensor, Tensor]:
        """Solve N whole blocks of each row behind the blocks whose pages `table` names.

        codes: [B, 2 + 25 N + 3] int64, two before and three behind the blocks' own; known: the
        same, bool, false where there is no such code (before the start, behind the end). cond:
        [B, 50 N, mel], the prompt's mel frames, zeros elsewhere. speaker: [B, mel]. count: [B]
        int64, real codes of the 25 N. first_block: [B] int64. table, keep: see `Blocks`. conv:
        [B, steps, 2, 2, 30, dim], the position convolutions' state. state: holds the pages, which
        are written.
        Returns (mel [B, 50 N, mel] float32, unspecified behind the real frames; conv behind them).
        """
        embed = self.decoder.estimator.input_embed
        kind = embed.proj.weight.dtype
        frames = torch.arange(cond.shape[1], device=cond.device)
        positions = first_block[:, None] * BLOCK_FRAMES + frames
        mu = self.encode(codes, known)
        spread = speaker.to(kind)[:, None].expand_as(mu)
        conditions = embed.conditions(torch.cat((cond.to(kind), mu, spread), dim=2))
        caches = [state[f"flow.kv.{layer}"] for layer in range(self.config.depth)]
        guidance = 1 + self.config.cfg
        given = (conditions, positions, conv, caches, table, first_block, count, keep, guidance)
        run = self.runs(Given(*given))
        x = self.noise[positions % len(self.noise)].to(torch.promote_types(kind, torch.float32))
        for step, size in enumerate(self.sizes):
            x = run.advance(x, step, size)
        return x, run.after
