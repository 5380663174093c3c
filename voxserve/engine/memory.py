"""How the device's memory is divided at start, and the state tensors themselves."""

import os
from dataclasses import dataclass, replace
from math import prod

import torch

from voxserve.config import EngineConfig
from voxserve.plugin import ModelSpec, PagePool, SpeechModel, StateTensor

_CPU_SHARE, _GPU_SHARE = 0.5, 0.8
"""Share of a CPU machine's memory, or of a GPU's free memory, that state may take when `pages` is
`auto`. What is left of a GPU's goes to the graphs."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything there is.

    max_steps: LM steps a request may take. pages: pages of each pool that requests share.
    clip_pages: further pages of it that reference clips share, 0 where they hold none. table_pages:
    entries of one request's page table, by pool; clip_table_pages: how many of these, at the front,
    may be its clip's, in pools where clips hold any. dtype: torch dtype name of the weights and of
    "model" state.
    """

    slots: int
    clips: int
    context: int
    pages: dict[str, int]
    clip_pages: dict[str, int]
    table_pages: dict[str, int]
    clip_table_pages: dict[str, int]
    dtype: str

    @property
    def max_steps(self) -> int:
        return self.context

    @property
    def spare_pages(self) -> dict[str, int]:
        """The page that padding names, by pool: the last one."""
        return {name: pages + self.clip_pages[name] for name, pages in self.pages.items()}


@dataclass(frozen=True, slots=True)
class Part:
    """One line of `voxserve check`: what the memory is for, how many of it, and all its bytes."""

    name: str
    count: int
    bytes: int


def sizes_for(spec: ModelSpec, config: EngineConfig, dtype: str, device: str = "cpu") -> Sizes:
    """Divide the memory of a device, after the weights are there.

    With `pages: auto` every slot can be full and have a clip of its own, or as many as the device's
    share for state holds; cheap pools are served first. Raises ValueError when not even one request
    of `context` steps fits.
    """
    context = min(config.context, spec.max_context)
    clips = config.clips if spec.encode_seconds else 0
    own = {pool.name: _request_pages(pool, spec, context) for pool in spec.pools}
    clip = {pool.name: _clip_pages(pool, spec) for pool in spec.pools if pool.clip_need and clips}
    none = dict.fromkeys(own, 0)
    table = {name: entries + clip.get(name, 0) for name, entries in own.items()}
    sizes = Sizes(config.slots, clips, context, none, none, table, clip, dtype)
    if config.pages != "auto":
        most = config.pages
        pages = {name: max(most, entries) for name, entries in own.items()}
        of_clips = {name: max(min(clips * n, most), n) for name, n in clip.items()}
        return replace(sizes, pages=pages, clip_pages=none | of_clips)
    budget = _budget_bytes(device)
    left = budget - sum(part.bytes for part in describe(spec, sizes))
    requests = _requests(spec, sizes, left) if left >= 0 else None
    if requests is None:
        raise ValueError(
            f"{config.slots} slots of {context} steps need more than the {budget} bytes that "
            f"are set aside for state on {device}; lower slots or context"
        )
    return replace(
        sizes,
        pages={name: entries * requests[name] for name, entries in own.items()},
        clip_pages={name: clip.get(name, 0) * min(requests[name], clips) for name in own},
    )


def _requests(spec: ModelSpec, sizes: Sizes, left: int) -> dict[str, int] | None:
    """How many requests of the longest kind each pool is made for, as many of them with a clip of
    their own as there may be clips; None if one has too few bytes.

    Each pool takes its share of what is left, the cheapest first, so that what it does not use
    goes to the others.
    """
    page = {
        name: sum(_bytes(t, sizes.dtype) for t in spec.state if t.pool == name)
        for name in sizes.table_pages
    }
    each = {name: entries * page[name] for name, entries in sizes.table_pages.items()}
    requests = {}
    for number, name in enumerate(sorted(each, key=lambda name: each[name])):
        share = left // (len(each) - number)
        clip = sizes.clip_table_pages.get(name, 0) * page[name]
        most = share // each[name] if each[name] else sizes.slots
        if most > sizes.clips and each[name] > clip:
            most = (share - sizes.clips * clip) // (each[name] - clip)
        requests[name] = count = min(sizes.slots, most)
        if count < 1:
            return None
        left -= count * (each[name] - clip) + min(count, sizes.clips) * clip
    return requests


def _budget_bytes(device: str) -> int:
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return int(free * _GPU_SHARE)
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _CPU_SHARE)


def describe(spec: ModelSpec, sizes: Sizes, weights_bytes: int | None = None) -> list[Part]:
    """What the memory goes to; weights only where their size is known."""
    parts = [] if weights_bytes is None else [Part("weights", 1, weights_bytes)]
    for tensor in spec.state:
        rows = _rows(tensor, sizes)
        name = f"{tensor.scope} state {tensor.name}"
        parts.append(Part(name, rows, rows * _bytes(tensor, sizes.dtype)))
    row_bytes = sizes.max_steps * spec.codebooks * torch.int16.itemsize
    parts.append(Part("codes table", sizes.slots + 1, (sizes.slots + 1) * row_bytes))
    return parts


def weights_bytes(model: SpeechModel) -> int | None:
    """Bytes of the model's parameters and buffers; None when it is no torch module."""
    if not isinstance(model, torch.nn.Module):
        return None
    tensors = [*model.parameters(), *model.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def allocate(spec: ModelSpec, sizes: Sizes, device: str) -> dict[str, torch.Tensor]:
    """Every state tensor by name, zeroed; the last row of each is the spare one."""
    return {
        tensor.name: torch.zeros(
            (_rows(tensor, sizes), *tensor.shape),
            dtype=_dtype(tensor, sizes.dtype),
            device=device,
        )
        for tensor in spec.state
    }


def codes_table(spec: ModelSpec, sizes: Sizes, device: str) -> torch.Tensor:
    """[slots + 1, max_steps, K] int16: every code of every running request."""
    shape = (sizes.slots + 1, sizes.max_steps, spec.codebooks)
    return torch.zeros(shape, dtype=torch.int16, device=device)


def _request_pages(pool: PagePool, spec: ModelSpec, context: int) -> int:
    """Pages that one request can come to need, whatever share of the context is its prompt."""
    longest_prompt = min(spec.prefill_tokens[-1], context - 1)
    positions = max(pool.need(rows, context - rows + 1) for rows in (1, longest_prompt))
    return max(1, -(-positions // pool.units))


def _clip_pages(pool: PagePool, spec: ModelSpec) -> int:
    """Full pages of the longest reference clip."""
    assert pool.clip_need is not None
    samples = spec.encode_seconds[-1] * (spec.clip_rate_hz or 0)
    return pool.clip_need(samples) // pool.units


def _rows(tensor: StateTensor, sizes: Sizes) -> int:
    if tensor.scope == "row":
        return sizes.slots + 1
    if tensor.scope == "clip":
        return sizes.clips + 1
    assert tensor.pool is not None, f"page state {tensor.name} names no pool"
    return sizes.spare_pages[tensor.pool] + 1


def _dtype(tensor: StateTensor, model_dtype: str) -> torch.dtype:
    name = model_dtype if tensor.dtype == "model" else tensor.dtype
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), f"{name} is no dtype"
    return dtype


def _bytes(tensor: StateTensor, model_dtype: str) -> int:
    return prod(tensor.shape) * _dtype(tensor, model_dtype).itemsize
