"""The slots of a language model whose keys and values lie in pages, as its stages need them."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from voxserve.nn.attention import PagedKv, Paging


class PagedSlots:
    """Finds the pages of the rows of a launch.

    state holds by name, behind `prefix`: kv.0, kv.1, … [pages + 1, 2, units, Hkv, D], one a layer,
    the last page a spare; pages [slots + 1, P] int64, of each slot in order; prompt [slots + 1]
    int64, positions of each slot's prompt. The last slot is padding's.
    layers: count; units: positions a page.
    """

    def __init__(
        self,
        state: Mapping[str, Tensor],
        prefix: str,
        layers: int,
        units: int,
    ) -> None:
        self._tables = state[f"{prefix}pages"]
        self._prompts = state[f"{prefix}prompt"]
        self._caches = [state[f"{prefix}kv.{layer}"] for layer in range(layers)]
        self._units = units

    def table(self, pages: Tensor) -> Tensor:
        """`pages` [B, N] widened to the state's P with the spare page."""
        missing = self._tables.shape[1] - pages.shape[1]
        return functional.pad(pages, (0, missing), value=self._spare)

    def prompts(
        self, slots: Tensor, table: Tensor, lengths: Tensor, width: int
    ) -> tuple[Tensor, list[PagedKv]]:
        """Of a prefill: positions [B, width] int64, and how each layer attends.

        slots, lengths [B] int64; table [B, P] int64, as `table` gives it.
        """
        positions = torch.arange(width, device=slots.device).expand(len(slots), width)
        valid = (positions < lengths[:, None]) & self.real(slots)
        return positions, self._attends(table, positions, valid, fresh=True)

    def next(self, slots: Tensor, steps: Tensor) -> tuple[Tensor, list[PagedKv]]:
        """Of a decode step: positions [B, 1] int64, each behind the prompt and the steps before,
        and how each layer attends. slots, steps [B] int64, from 1 on."""
        positions = (self._prompts[slots] + steps - 1).clamp(min=0)[:, None]
        return positions, self._attends(
            self._tables[slots], positions, self.real(slots), fresh=False
        )

    def real(self, slots: Tensor) -> Tensor:
        """[B, 1] bool: rows that are no padding."""
        return (slots != len(self._prompts) - 1)[:, None]

    @property
    def _spare(self) -> int:
        return len(self._caches[0]) - 1

    def _attends(
        self, table: Tensor, positions: Tensor, valid: Tensor, *, fresh: bool
    ) -> list[PagedKv]:
        paging = Paging(table, positions, valid, units=self._units, spare=self._spare, fresh=fresh)
        return [PagedKv(cache, paging) for cache in self._caches]
