"""From codes to mel frames: flow matching, block by block, exact for any grouping of the blocks.

Follows `CausalMaskedDiffWithDiT` and `CausalConditionalCFM` of CosyVoice in their streaming form
with the parameter names of flow.pt. A frame sees all frames up to the end of its own block of 50,
counted from the first frame of the prompt, so a block that is done never changes: its keys and
values stay in a page, and a block that follows reads them there. The noise that the solver starts
from is one fixed table, indexed by the frame.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.cosyvoice3.config import FlowConfig
from voxserve.models.cosyvoice3.dit import Estimator
from voxserve.models.cosyvoice3.state import BLOCK_FRAMES, BRANCHES
from voxserve.nn.attention import attention
from voxserve.nn.transformer import Attend
from voxserve.plugin import State

CODE_FRAMES = 2
BLOCK_CODES = BLOCK_FRAMES // CODE_FRAMES
LEFT_CODES = 2
"""Codes before a block that its token encoder looks back to."""
NOISE_FRAMES = 15_000


def solver_grid(steps: int) -> tuple[Tensor, list[float]]:
    """(times [S] float32 at which the estimator is asked, sizes of the steps): an inverted cosine.

    Rounds as the reference, which adds up the steps.
    """
    marks = 1 - torch.cos(torch.linspace(0, 1, steps + 1, device="cpu") * 0.5 * torch.pi)
    time, times, sizes = marks[0], [], []
    for mark in marks[1:]:
        times.append(time)
        sizes.append(mark - time)
        time = time + sizes[-1]
    return torch.stack(times), [float(size) for size in sizes]


class Blocks:
    """Where one run's blocks lie in the pages of their rows, and which keys each frame sees.

    table: [B, P] int64, each row's pages from its first block on; unused entries name the spare
    page. first: [B] int64, blocks before this run. count: [B] int64, real codes of this run.
    keep: [B, N] bool, blocks whose keys and values go to their page; the others use the spare one.
    """

    def __init__(
        self, table: Tensor, first: Tensor, count: Tensor, keep: Tensor, spare: int
    ) -> None:
        blocks = keep.shape[1]
        place = first[:, None] + torch.arange(blocks, device=table.device)
        if table.device.type == "cpu":
            # A captured graph needs the full width; a CPU may look at what is in use.
            table = table[:, : int(place.max()) + 1]
        inside = place.clamp(max=table.shape[1] - 1)
        self.page = torch.where(keep, table.gather(1, inside), spare)
        self.table = table[:, None]
        self.branch = torch.arange(BRANCHES, device=table.device)[:, None]
        end = first * BLOCK_FRAMES + count * CODE_FRAMES
        seen = torch.minimum((place + 1) * BLOCK_FRAMES, end[:, None]).clamp(min=1)
        places = torch.arange(table.shape[1] * BLOCK_FRAMES, device=table.device)
        mask = places < seen[..., None]
        if blocks > 1:
            mask = mask.repeat_interleave(BLOCK_FRAMES, dim=1)
        self.mask = mask.repeat_interleave(BRANCHES, dim=0)


class BlockKv:
    """`Attend` of one layer and step over pages; writes the run's own blocks first.

    cache: [pages + 1, 2 branches, 2, 50, H, D], keys and values, finite everywhere.
    """

    def __init__(self, cache: Tensor, blocks: Blocks) -> None:
        self.cache = cache
        self.blocks = blocks

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        at = self.blocks
        own = torch.stack((keys, values), dim=1)
        rows, heads = len(at.table), own.shape[3:]
        own = own.reshape(rows, BRANCHES, 2, -1, BLOCK_FRAMES, *heads)
        # [B, branch, 2, N, 50, H, D] to pages first
        self.cache[at.page] = own.permute(0, 3, 1, 2, 4, 5, 6).to(self.cache.dtype)
        keys, values = (
            self.cache[at.table, at.branch, kind].flatten(2, 3).flatten(0, 1) for kind in (0, 1)
        )
        return attention(queries, keys, values, at.mask)


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

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.config = config
        self.input_embedding = nn.Embedding(config.vocabulary, config.mel)
        self.spk_embed_affine_layer = nn.Linear(config.speaker, config.mel)
        self.pre_lookahead_layer = LookAhead(config)
        self.decoder = Solver(config)
        generator = torch.Generator("cpu").manual_seed(0)
        noise = torch.randn(1, config.mel, NOISE_FRAMES, generator=generator, device="cpu")
        self.register_buffer("noise", noise[0].T.contiguous(), persistent=False)
        self.times, self.sizes = solver_grid(config.steps)

    def finish(self) -> None:
        self.decoder.estimator.finish(self.times)

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
        [B, steps, 2, 2, dim, 30], the position convolutions' state. state: holds the pages, which
        are written.
        Returns (mel [B, 50 N, mel] float32, unspecified behind the real frames; conv behind them).
        """
        estimator = self.decoder.estimator
        kind = estimator.proj_out.weight.dtype
        caches = [state[f"flow.kv.{layer}"] for layer in range(self.config.depth)]
        blocks = Blocks(table, first_block, count, keep, len(caches[0]) - 1)
        frames = torch.arange(cond.shape[1], device=cond.device)
        positions = first_block[:, None] * BLOCK_FRAMES + frames
        rotation = estimator.rotary_embed(positions.repeat_interleave(BRANCHES, dim=0))
        mu = self.encode(codes, known)
        spread = speaker.to(kind)[:, None].expand_as(mu)
        given = torch.cat((cond.to(kind), mu, spread), dim=2)
        conditions = estimator.input_embed.conditions(given)
        lengths = (count * CODE_FRAMES).repeat_interleave(BRANCHES)
        guidance, after = 1 + self.config.cfg, []
        x = self.noise[positions % len(self.noise)].to(torch.promote_types(kind, torch.float32))
        for step, size in enumerate(self.sizes):
            y, behind = estimator.input_embed(
                x.to(kind), conditions, conv[:, step].flatten(0, 1), lengths
            )
            after.append(behind.unflatten(0, (-1, BRANCHES)))
            attends: list[Attend] = [BlockKv(cache[:, step], blocks) for cache in caches]
            with_them, without = estimator(y, step, rotation, attends).to(x.dtype).unbind(1)
            x = x + size * (guidance * with_them - (guidance - 1) * without)
        return x, torch.stack(after, dim=1)
