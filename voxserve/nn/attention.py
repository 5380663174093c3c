"""Where a decoder layer's keys and values live: four forms of `voxserve.nn.transformer.Attend`.

Plain torch; what runs on a CPU, what explains the kernels and what they are compared with.
"""

import torch
from torch import Tensor
from torch.nn import functional


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, *, triangle: bool = False
) -> Tensor:
    """Softmax attention, scale 1 / sqrt(D), key heads shared by groups of query heads.

    queries [B, T, H, D]; keys, values [B, S, Hkv, D]; mask [B or 1, T, S] bool, true where a query
    may look, or None for everywhere; triangle: query t looks at keys 0 … t. Returns [B, T, H, D].
    A query that may look nowhere (padding) gives an unspecified finite value or NaN in its own row
    only.
    """
    out = functional.scaled_dot_product_attention(
        queries.transpose(1, 2),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=None if mask is None else mask[:, None],
        is_causal=triangle,
        enable_gqa=queries.shape[2] != keys.shape[2],
    )
    return out.transpose(1, 2)


def causal(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """`Attend` over the step itself: T positions, nothing before them, nothing kept."""
    return attention(queries, keys, values, None, triangle=True)


class Paging:
    """Where one step's positions lie in the pages of their rows; the same for all layers.

    pages: [B, P] int64, each row's pages in order; unused entries name the spare page.
    positions: [B, T] int64 of the step's tokens; valid: [B, T] bool, false for padding.
    units: positions a page; spare: the page that takes what padding writes.
    fresh: nothing precedes this step in any row, so it attends to itself alone (a prefill).
    """

    def __init__(
        self,
        pages: Tensor,
        positions: Tensor,
        valid: Tensor,
        *,
        units: int,
        spare: int,
        fresh: bool,
    ) -> None:
        if pages.device.type == "cpu":
            # A captured graph needs the full width; a CPU may look at what is in use.
            pages = pages[:, : int(positions.max()) // units + 1]
        inside = (positions // units).clamp(max=pages.shape[1] - 1)
        self.pages = pages
        self.positions = positions
        self.fresh = fresh
        self.page = torch.where(valid, pages.gather(1, inside), spare)
        self.offset = positions % units
        places = torch.arange(pages.shape[1] * units, device=pages.device)
        self.mask = places <= positions[..., None]


class PagedKv:
    """`Attend` of one layer over pages of a pool.

    cache: [pages + 1, 2, units, Hkv, D], keys and values, finite everywhere.
    """

    def __init__(self, cache: Tensor, paging: Paging) -> None:
        self.cache = cache
        self.paging = paging

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        at = self.paging
        self.cache[at.page, 0, at.offset] = keys.to(self.cache.dtype)
        self.cache[at.page, 1, at.offset] = values.to(self.cache.dtype)
        if at.fresh:
            return causal(queries, keys, values)
        return self.look(queries)

    def look(self, queries: Tensor) -> Tensor:
        """The queries over all that the pages hold up to their positions."""
        at = self.paging
        keys, values = (self.cache[at.pages, kind].flatten(1, 2) for kind in (0, 1))
        return attention(queries, keys, values, at.mask)


class GrowingKv:
    """`Attend` of one layer over its own earlier calls, for the few steps within one frame.

    The first call may have several positions, later ones have one each.
    """

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if self.keys is None or self.values is None:
            self.keys, self.values = keys, values
            return causal(queries, keys, values)
        assert queries.shape[1] == 1
        self.keys = torch.cat((self.keys, keys), dim=1)
        self.values = torch.cat((self.values, values), dim=1)
        return attention(queries, self.keys, self.values, None)


class WindowKv:
    """`Attend` of one layer over a sliding window, with explicit state.

    past: [B, 2, W - 1, Hkv, D], keys and values of the positions just before, right-aligned.
    seen: [B] int64, positions before this step; window: W, a position itself included.
    lengths: [B] int64, valid positions of this step; `after` is the state behind them.
    """

    def __init__(self, past: Tensor, seen: Tensor, lengths: Tensor, window: int) -> None:
        self.past = past
        self.lengths = lengths
        self.window = window
        self.seen = seen
        self.after = past

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        kept, steps = self.window - 1, queries.shape[1]
        all_keys = torch.cat((self.past[:, 0].to(keys.dtype), keys), dim=1)
        all_values = torch.cat((self.past[:, 1].to(values.dtype), values), dim=1)
        place = torch.arange(kept + steps, device=queries.device)
        query = kept + torch.arange(steps, device=queries.device)[:, None]
        near = (place <= query) & (place > query - self.window)
        exists = place >= kept - self.seen[:, None]
        mask = near[None] & exists[:, None]
        both = torch.stack((all_keys, all_values), dim=1)
        self.after = tail(both.movedim(2, -1), self.lengths, kept).movedim(-1, 2)
        return attention(queries, all_keys, all_values, mask)


def tail(x: Tensor, lengths: Tensor, size: int) -> Tensor:
    """The `size` columns of x [B, ..., size + T] that end `lengths` [B] columns behind the first
    `size`: what a causal layer has to remember once it has taken in that many of its T inputs."""
    index = lengths[:, None] + torch.arange(size, device=x.device)
    shape = (x.shape[0], *([1] * (x.dim() - 2)), size)
    return x.gather(-1, index.view(shape).expand(*x.shape[:-1], size))
