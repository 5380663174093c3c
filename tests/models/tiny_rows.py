"""Tiny and its state, driven stage by stage as the engine does."""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from voxserve.checkpoints import find
from voxserve.models.tiny.config import POOL, TinyConfig
from voxserve.models.tiny.host import TinyHost
from voxserve.models.tiny.stages import TinyModel
from voxserve.models.tiny.weights import load
from voxserve.requests import Prompt, SpeechRequest

TEXT = "Streaming starts soon."
SLOTS = 5
CLIPS = 2


@cache
def host() -> TinyHost:
    return TinyHost(find("tiny", dummy=False)[1])


@cache
def config() -> TinyConfig:
    return TinyConfig.read(find("tiny", dummy=False)[1].config)


def model(dtype: str = "float64") -> TinyModel:
    torch.set_num_threads(1)
    return load(find("tiny", dummy=False)[1], "cpu", dtype)


def prompt(text: str = TEXT, **fields: object) -> Prompt:
    return host().prompt(SpeechRequest(text=text, **fields))  # type: ignore[arg-type]


class Rows:
    """State of SLOTS rows. Pages are dealt out shuffled, so that no row has its own in order."""

    def __init__(self, tiny: TinyModel, dtype: str = "float64", seed: int = 0) -> None:
        self.tiny = tiny
        per_row = config().pages
        self.pages = torch.from_numpy(
            np.random.default_rng(seed).permutation(SLOTS * per_row).reshape(SLOTS, per_row)
        )
        counts = {"row": SLOTS, "clip": CLIPS, "page": SLOTS * per_row}
        self.state = {
            tensor.name: torch.zeros(
                (counts[tensor.scope] + 1, *tensor.shape),
                dtype=getattr(torch, dtype if tensor.dtype == "model" else tensor.dtype),
            )
            for tensor in host().spec.state
        }

    def prefill(self, prompts: Mapping[int, Prompt], pad: int = 0, clip: int = CLIPS) -> Tensor:
        """Start `prompts` by slot, with `pad` more rows of padding. Returns their codes [n, K]."""
        slots, given = list(prompts), list(prompts.values())
        longest = host().spec.prefill_tokens[0]
        rows = np.zeros((len(given), longest, 2), np.int64)
        for row, one in zip(rows, given, strict=True):
            row[: len(one.rows)] = one.rows
        spare_page = self.state["lm.kv.0"].shape[0] - 1
        io = {
            "slots": _padded(torch.tensor(slots), pad, SLOTS),
            "lengths": _padded(torch.tensor([len(one.rows) for one in given]), pad),
            "rows": _padded(torch.from_numpy(rows), pad),
            "sampling": _padded(torch.from_numpy(np.stack([one.sampling for one in given])), pad),
            "seeds": _padded(torch.tensor([one.seed for one in given]), pad),
            "ignore_eos": _padded(torch.tensor([one.ignore_eos for one in given]), pad),
            "clips": _padded(torch.full((len(given),), clip), pad, CLIPS),
            f"pages_{POOL}": _padded(self.pages[slots], pad, spare_page),
        }
        return self.tiny.prefill(io, self.state)["codes"][: len(slots)]

    def decode(self, steps: Mapping[int, tuple[Prompt, int]], pad: int = 0) -> Tensor:
        """Compute one step for each slot: its prompt and the step. Returns codes [n, K]."""
        pad_row = host().spec.pad_row
        inject = [
            one.inject[step - 1].tolist() if step <= len(one.inject) else list(pad_row)
            for one, step in steps.values()
        ]
        io = {
            "slots": _padded(torch.tensor(list(steps)), pad, SLOTS),
            "steps": _padded(torch.tensor([step for _, step in steps.values()]), pad),
            "inject": _padded(torch.tensor(inject), pad),
        }
        return self.tiny.decode(io, self.state)["codes"][: len(steps)]

    def speak(self, prompts: Mapping[int, Prompt], steps: int, pad: int = 0) -> list[Tensor]:
        """Codes [steps, K] of each of `prompts`, all in one batch."""
        codes = [self.prefill(prompts, pad)]
        for step in range(1, steps):
            codes.append(self.decode({slot: (one, step) for slot, one in prompts.items()}, pad))
        return list(torch.stack(codes, dim=1))

    def audio(
        self,
        codes: Tensor,
        slots: Sequence[int],
        first: Sequence[int],
        *,
        lengths: Sequence[int] | None = None,
        pad: int = 0,
    ) -> Tensor:
        """Decode codes [B, F, K] as the frames `first` and on of each row. Returns [B, samples]."""
        frames = codes.shape[1]
        real = torch.tensor(lengths if lengths is not None else [frames] * len(slots))
        start = torch.tensor(first)
        io = {
            "slots": _padded(torch.tensor(slots), pad, SLOTS),
            "codes": _padded(codes, pad),
            "valid": _padded(torch.arange(frames) < real[:, None], pad),
            "lengths": _padded(real, pad),
            "first_frame": _padded(start, pad),
            "fresh": _padded(start == 0, pad),
            "last": _padded(torch.zeros(len(slots), dtype=torch.bool), pad),
        }
        return self.tiny.codec(io, self.state)["audio"][: len(slots)]

    def stream(self, codes: Tensor, slot: int, cuts: Sequence[int]) -> Tensor:
        """Audio [samples] of codes [F, K] decoded in chunks of `cuts` frames."""
        parts, first = [], 0
        for count in cuts:
            part = codes[None, first : first + count]
            parts.append(self.audio(part, [slot], [first])[0])
            first += count
        assert first == len(codes)
        return torch.cat(parts)


def _padded(values: Tensor, rows: int, fill: int | None = None) -> Tensor:
    """`rows` copies of the first row more, or rows of `fill`."""
    if rows == 0:
        return values
    more = values[:1].expand(rows, *values.shape[1:]).clone()
    return torch.cat((values, more if fill is None else more.fill_(fill)))
