"""The steps of the flow's solver over blocks whose keys and values live in pages."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from voxserve.models.cosyvoice3.dit import Estimator
from voxserve.models.cosyvoice3.state import BLOCK_FRAMES, BRANCHES
from voxserve.nn.attention import attention
from voxserve.nn.transformer import Attend

CODE_FRAMES = 2
"""Mel frames a code."""


def solver_grid(steps: int) -> tuple[Tensor, list[float]]:
    """(times [S] float32 at which the estimator is asked, sizes of the steps): an inverted cosine.

    Rounds as the reference, which adds up the steps.
    """
    marks = 1 - torch.cos(torch.linspace(0, 1, steps + 1) * 0.5 * torch.pi)
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


@dataclass(frozen=True, slots=True)
class Given:
    """What one run of the solver works on; its steps differ in the noisy mel alone.

    conditions: [B, 2, T, dim], from `InputEmbedding.conditions`. positions: [B, T] int64. conv: the
    position convolutions' state [B, steps, 2, 2, 30, dim]. caches: a layer's pages each, [pages +
    1, steps, 2, 2, 50, H, D]. table, first, count, keep: as `Blocks` has them. guidance: how far a
    step goes along the velocities with conditions; by one less it goes back along those without.
    """

    conditions: Tensor
    positions: Tensor
    conv: Tensor
    caches: list[Tensor]
    table: Tensor
    first: Tensor
    count: Tensor
    keep: Tensor
    guidance: float


class Run(Protocol):
    """The estimator on one run of the solver."""

    def advance(self, x: Tensor, step: int, size: float) -> Tensor:
        """x [B, T, mel] float32 or wider behind step number `step`, in order; x may be overwritten.
        Writes the pages."""

    @property
    def after(self) -> Tensor:
        """The new state of the position convolutions, once all steps are done."""


class PlainRun:
    """`Run` in plain torch."""

    def __init__(self, estimator: Estimator, given: Given) -> None:
        self.estimator = estimator
        self.given = given
        spare = len(given.caches[0]) - 1
        self.blocks = Blocks(given.table, given.first, given.count, given.keep, spare)
        self.rotation = estimator.rotary_embed(given.positions.repeat_interleave(BRANCHES, dim=0))
        self.lengths = (given.count * CODE_FRAMES).repeat_interleave(BRANCHES)
        self._after: list[Tensor] = []

    def advance(self, x: Tensor, step: int, size: float) -> Tensor:
        kind, guidance = self.estimator.proj_out.weight.dtype, self.given.guidance
        with_them, without = self._velocities(x.to(kind), step).to(x.dtype).unbind(1)
        return x + size * (guidance * with_them - (guidance - 1) * without)

    def _velocities(self, x: Tensor, step: int) -> Tensor:
        """x [B, T, mel] -> [B, 2, T, mel]."""
        given = self.given
        before = given.conv[:, step].flatten(0, 1)
        y, behind = self.estimator.input_embed(x, given.conditions, before, self.lengths)
        self._after.append(behind.view(-1, BRANCHES, *behind.shape[1:]))
        attends: list[Attend] = [BlockKv(cache[:, step], self.blocks) for cache in given.caches]
        out: Tensor = self.estimator(y, step, self.rotation, attends)
        return out

    @property
    def after(self) -> Tensor:
        return torch.stack(self._after, dim=1)
