"""The small checkpoint, loaded, and its four stages driven as the engine drives them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import torch
from torch import Tensor

from tests.models.cosyvoice3.checkpoint import make_checkpoint
from voxserve.checkpoints import find
from voxserve.config import EngineConfig
from voxserve.engine.memory import allocate, sizes_for
from voxserve.models.cosyvoice3.host import CosyVoiceHost
from voxserve.models.cosyvoice3.limits import AHEAD, BLOCK, CODE_SAMPLES, LEFT, TAIL
from voxserve.models.cosyvoice3.stages import CosyVoiceModel
from voxserve.models.cosyvoice3.weights import load
from voxserve.plugin import Target
from voxserve.requests import Prompt, ReferenceClip, SpeechRequest

CONTEXT = 512
CLIP_BLOCKS, OWN_BLOCKS = 4, 4
"""Of the longest clip and the longest speech in these tests; blocks are large."""


@cache
def folder() -> Path:
    made = Path(mkdtemp(prefix="cosyvoice3-"))
    make_checkpoint(made)
    return made


@cache
def host() -> CosyVoiceHost:
    return CosyVoiceHost(find(str(folder()), dummy=False)[1])


@cache
def model(dtype: str = "float32") -> CosyVoiceModel:
    torch.set_num_threads(1)
    return load(find(str(folder()), dummy=False)[1], Target("cpu", dtype))


def silence(codes: int, text: str | None = None) -> ReferenceClip:
    """A clip of as many codes, for tests that do not listen to it."""
    audio = np.zeros(codes * CODE_SAMPLES, np.float32)
    return ReferenceClip(f"{codes} codes", audio, text)


def prompt(text: str, clip: ReferenceClip, **fields: object) -> Prompt:
    return host().prompt(SpeechRequest(text=text, clip=clip, **fields))  # type: ignore[arg-type]


class Rig:
    """State for some slots and clips; pages are handed out from both ends."""

    def __init__(self, slots: int = 4, clips: int = 2, dtype: str = "float32") -> None:
        self.model, self.spec, self.slots, self.clips = model(dtype), host().spec, slots, clips
        config = EngineConfig(slots=slots, clips=clips, context=CONTEXT)
        sizes = sizes_for(self.spec, config, dtype)
        self.sizes = replace(
            sizes,
            pages={**sizes.pages, "flow": slots * OWN_BLOCKS},
            clip_pages={"kv": 0, "flow": clips * CLIP_BLOCKS},
            table_pages={**sizes.table_pages, "flow": CLIP_BLOCKS + OWN_BLOCKS},
            clip_table_pages={"flow": CLIP_BLOCKS},
        )
        self.state = allocate(self.spec, self.sizes, "cpu")
        for name in ("lm.kv.0", "flow.kv.0"):
            self.state[name][...] = 7.0  # whoever reads what nobody wrote is found out

    def own_pages(self, pool: str, slot: int) -> list[int]:
        count = self.sizes.pages[pool] // self.slots
        return [page * self.slots + slot for page in range(count)]

    def clip_pages(self, clip: int) -> list[int]:
        entries = self.sizes.clip_table_pages["flow"]
        first = self.sizes.pages["flow"] + clip * entries
        return list(range(first + entries - 1, first - 1, -1))

    def tables(self, pool: str, slot: int, clip: int, blocks: int) -> list[int]:
        """A page table: the clip's blocks, then the request's own pages, then the spare one."""
        pages = self.clip_pages(clip)[:blocks] if pool == "flow" else []
        pages += self.own_pages(pool, slot)
        width, spare = self.sizes.table_pages[pool], self.sizes.spare_pages[pool]
        return (pages + [spare] * width)[:width]

    def encode(self, row: int, clip: ReferenceClip, seconds: int = 5) -> None:
        audio = np.zeros((1, seconds * 24_000), np.float32)
        audio[0, : len(clip.audio)] = clip.audio
        count, spare = self.blocks(clip), self.sizes.spare_pages["flow"]
        width = self.sizes.clip_table_pages["flow"]
        pages = (self.clip_pages(row)[:count] + [spare] * width)[:width]
        self.model.encode(
            {
                "clips": torch.tensor([row]),
                "audio": torch.from_numpy(audio),
                "lengths": torch.tensor([len(clip.audio)]),
                "pages_flow": torch.tensor([pages]),
            },
            self.state,
        )

    def blocks(self, clip: ReferenceClip) -> int:
        return (len(clip.audio) // CODE_SAMPLES - TAIL) // BLOCK

    def prefill(self, prompts: Mapping[int, Prompt], row: int = 0) -> Tensor:
        """Start slot -> prompt, all with the clip in `row`, with a padding row. Codes [n]."""
        bucket = max(len(p.rows) for p in prompts.values())
        bucket = next(size for size in self.spec.prefill_tokens if size >= bucket)
        slots, every = [*prompts, self.slots], [*prompts.values(), next(iter(prompts.values()))]
        rows = np.zeros((len(slots), bucket, self.spec.prompt_columns), np.int64)
        for at, one in enumerate(every):
            rows[at, : len(one.rows)] = one.rows
        tables = {
            f"pages_{pool}": torch.tensor(
                [
                    [self.sizes.spare_pages[pool]] * width
                    if slot == self.slots
                    else self.tables(pool, slot, row, self._blocks_of(one))
                    for slot, one in zip(slots, every, strict=True)
                ]
            )
            for pool, width in self.sizes.table_pages.items()
        }
        out = self.model.prefill(
            {
                "slots": torch.tensor(slots),
                "lengths": torch.tensor([len(one.rows) for one in every]),
                "rows": torch.from_numpy(rows),
                "sampling": torch.from_numpy(np.stack([one.sampling for one in every])),
                "seeds": torch.tensor([one.seed for one in every]),
                "ignore_eos": torch.tensor([one.ignore_eos for one in every]),
                "clips": torch.tensor([row] * len(prompts) + [self.clips]),
                **tables,
            },
            self.state,
        )
        return out["codes"][:-1, 0]

    def decode(self, steps: Mapping[int, int]) -> Tensor:
        """One step of slot -> its number, with a padding row. Codes [n]."""
        out = self.model.decode(
            {
                "slots": torch.tensor([*steps, self.slots]),
                "steps": torch.tensor([*steps.values(), 1]),
                "inject": torch.zeros(len(steps) + 1, 1, dtype=torch.int64),
            },
            self.state,
        )
        return out["codes"][:-1, 0]

    def speak(self, one: Prompt, slot: int = 1, row: int = 0) -> list[int]:
        """Codes until the speech ends, or the prompt's limit."""
        said = [int(self.prefill({slot: one}, row)[0])]
        while said[-1] < 6561 and len(said) < one.max_steps:
            said.append(int(self.decode({slot: len(said)})[0]))
        return said[:-1] if said[-1] >= 6561 else said

    def sound(self, chunks: Mapping[int, tuple[Sequence[int], int, bool]]) -> list[Tensor]:
        """One codec launch of slot -> (all its codes, first frame of the chunk, whether it is the
        last), with a padding row. Audio of each."""
        rows, steps = len(chunks) + 1, host().steps(1)
        width = LEFT + BLOCK + AHEAD
        codes = torch.zeros(rows, width, 1, dtype=torch.int64)
        valid = torch.zeros(rows, width, dtype=torch.bool)
        firsts, lengths, lasts = [], [], []
        for at, (said, first, last) in enumerate(chunks.values()):
            for place in range(width):
                if 0 <= first - LEFT + place < len(said):
                    codes[at, place], valid[at, place] = said[first - LEFT + place], True
            size = BLOCK if first else BLOCK - TAIL
            firsts.append(first)
            lengths.append(len(said) - first if last else size)
            lasts.append(last)
        out = self.model.codec(
            {
                "slots": torch.tensor([*chunks, self.slots]),
                "codes": codes,
                "valid": valid,
                "lengths": torch.tensor([*lengths, BLOCK - TAIL]),
                "first_frame": torch.tensor([*firsts, 0]),
                "fresh": torch.tensor([*(first == 0 for first in firsts), True]),
                "last": torch.tensor([*lasts, False]),
            },
            self.state,
        )["audio"]
        return [
            out[at, : steps.chunk_samples(firsts[at], lengths[at], lasts[at])].clone()
            for at in range(len(chunks))
        ]

    def say(self, said: Sequence[int], slot: int = 1) -> Tensor:
        """All chunks of one request, one after the other."""
        parts, first = [], 0
        while first < len(said):
            size = BLOCK if first else BLOCK - TAIL
            last = len(said) - first <= size
            parts += self.sound({slot: (said, first, last)})
            first += size
        return torch.cat(parts)

    def _blocks_of(self, one: Prompt) -> int:
        return 0 if one.clip is None else self.blocks(one.clip)
