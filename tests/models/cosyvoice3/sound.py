"""Drives the small flow and vocoder as the codec stage does: slots, pages, chunks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch
from torch import Tensor

from tests.models.cosyvoice3.sound_checkpoint import (
    SMALL_FLOW,
    SMALL_VOCODER,
    codes,
    flow_tensors,
    hift_tensors,
    noise_table,
    numbers,
)
from voxserve.models.cosyvoice3.codec_weights import load_flow, load_vocoder
from voxserve.models.cosyvoice3.flow import BLOCK_CODES, LEFT_CODES, Flow
from voxserve.models.cosyvoice3.solver import CODE_FRAMES
from voxserve.models.cosyvoice3.state import (
    BLOCK_FRAMES,
    emitted_samples,
    flow_state,
    vocoder_state,
)
from voxserve.models.cosyvoice3.vocoder import Vocoder
from voxserve.plugin import StateTensor

AHEAD = 3
TAIL = 13


@cache
def folder() -> Path:
    """flow.pt and hift.pt, the latter with the prefix of its training."""
    made = Path(mkdtemp(prefix="cosyvoice3-"))
    torch.save(flow_tensors(SMALL_FLOW), made / "flow.pt")
    hift = {f"generator.{name}": value for name, value in hift_tensors(SMALL_VOCODER).items()}
    torch.save(hift, made / "hift.pt")
    return made


@cache
def flow(dtype: str) -> Flow:
    torch.set_num_threads(1)
    return load_flow(folder(), SMALL_FLOW, "cpu", getattr(torch, dtype))


@cache
def vocoder(dtype: str) -> Vocoder:
    torch.set_num_threads(1)
    made = load_vocoder(folder(), SMALL_VOCODER, "cpu", getattr(torch, dtype))
    made.m_source.hear(noise_table(SMALL_VOCODER, 10))
    return made


def allocate(
    tensors: Sequence[StateTensor], rows: Mapping[str, int], dtype: str
) -> dict[str, Tensor]:
    """State filled with rubbish: whoever reads what nobody wrote is found out."""
    return {
        tensor.name: torch.full(
            (rows[tensor.scope] + 1, *tensor.shape),
            3,
            dtype=getattr(torch, dtype if tensor.dtype == "model" else tensor.dtype),
        )
        for tensor in tensors
    }


@dataclass
class Speech:
    """One request: the clip's codes that the flow sees, mel frames and voice, and the new codes."""

    name: str
    prompt: int
    new: int
    pages: list[int] = field(default_factory=list)
    conv: Tensor | None = None
    solved: int = 0

    @property
    def codes(self) -> Tensor:
        return codes(self.name, self.prompt + self.new)

    @property
    def clip_mel(self) -> Tensor:
        return numbers(f"mel {self.name}", (1, CODE_FRAMES * self.prompt, 80), 3.0)[0]

    @property
    def blocks(self) -> int:
        return -(-(self.prompt + self.new) // BLOCK_CODES)

    @property
    def clip_blocks(self) -> int:
        """Blocks whose look-ahead lies inside the clip."""
        return (self.prompt - AHEAD) // BLOCK_CODES


class FlowRig:
    """The small flow with a pool of pages, handed out from the last one down."""

    def __init__(self, pages: int = 40, dtype: str = "float32") -> None:
        self.flow = flow(dtype)
        self.kind = getattr(torch, dtype)
        self.spare = pages
        self.state = allocate(flow_state(SMALL_FLOW), {"page": pages, "row": 0, "clip": 0}, dtype)
        self._free = list(range(pages))

    def take(self, count: int) -> list[int]:
        return [self._free.pop() for _ in range(count)]

    def speaker(self, speech: Speech) -> Tensor:
        return self.flow.speaker(numbers(f"speaker {speech.name}", (1, 192)))[0]

    def run(self, group: Sequence[Speech], blocks: int, end: Mapping[str, int]) -> list[Tensor]:
        """Solve the next blocks of every row, which may have fewer than `blocks`, with a padding
        row. end: codes that exist by now of each. Returns the mel frames [50 blocks, 80] of each.
        """
        width = LEFT_CODES + BLOCK_CODES * blocks + AHEAD
        rows = len(group) + 1
        known = torch.zeros(rows, width, dtype=torch.bool)
        said = torch.full((rows, width), 77)
        cond = torch.zeros(rows, BLOCK_FRAMES * blocks, 80)
        count, keep = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, blocks).bool()
        first = torch.tensor([*(speech.solved for speech in group), 0])
        table = torch.full((rows, max(len(speech.pages) for speech in group)), self.spare)
        convs = [self._conv(speech) for speech in group]
        for row, speech in enumerate(group):
            start = speech.solved * BLOCK_CODES
            place = start - LEFT_CODES + torch.arange(width)
            exists = (place >= 0) & (place < end[speech.name])
            known[row] = exists
            said[row, exists] = speech.codes[place[exists]]
            count[row] = min(max(end[speech.name] - start, 0), BLOCK_CODES * blocks)
            keep[row] = torch.arange(blocks) * BLOCK_CODES < count[row]
            frames = speech.clip_mel[start * CODE_FRAMES :][: cond.shape[1]]
            cond[row, : len(frames)] = frames
            table[row, : len(speech.pages)] = torch.tensor(speech.pages)
        voices = torch.stack([*(self.speaker(speech) for speech in group), torch.zeros(80)])
        conv = torch.stack([*convs, torch.zeros_like(convs[0])])
        with torch.inference_mode():
            mel, conv = self.flow.run(
                said, known, cond, voices, count, first, table, keep, conv, self.state
            )
        for row, speech in enumerate(group):
            speech.conv = conv[row]
            speech.solved += -(-int(count[row]) // BLOCK_CODES)
        return list(mel[:-1])

    def _conv(self, speech: Speech) -> Tensor:
        if speech.conv is None:
            return torch.zeros(self.state["flow.conv"].shape[1:], dtype=self.kind)
        return speech.conv

    def listen(self, group: Sequence[Speech]) -> None:
        """Solve the full blocks of clips, as `encode` does: all in one run."""
        most = max(speech.clip_blocks for speech in group)
        end = {speech.name: speech.clip_blocks * BLOCK_CODES for speech in group}
        for speech in group:
            speech.pages = self.take(speech.clip_blocks)
        # The look-ahead of the last block is the clip's.
        self._run_clips(group, most, end)

    def _run_clips(self, group: Sequence[Speech], blocks: int, end: Mapping[str, int]) -> None:
        width = LEFT_CODES + BLOCK_CODES * blocks + AHEAD
        rows = len(group)
        place = torch.arange(width) - LEFT_CODES
        said, cond = torch.zeros(rows, width, dtype=torch.int64), torch.zeros(rows, 0, 80)
        known = torch.zeros(rows, width, dtype=torch.bool)
        cond = torch.zeros(rows, BLOCK_FRAMES * blocks, 80)
        table = torch.full((rows, blocks), self.spare)
        for row, speech in enumerate(group):
            known[row] = (place >= 0) & (place < speech.prompt)
            said[row, known[row]] = speech.codes[place[known[row]]]
            frames = speech.clip_mel[: cond.shape[1]]
            cond[row, : len(frames)] = frames
            table[row, : len(speech.pages)] = torch.tensor(speech.pages)
        counts = torch.tensor([end[speech.name] for speech in group])
        keep = torch.arange(blocks) < (counts // BLOCK_CODES)[:, None]
        conv = torch.zeros(rows, *self.state["flow.conv"].shape[1:], dtype=self.kind)
        voices = torch.stack([self.speaker(speech) for speech in group])
        with torch.inference_mode():
            _, conv = self.flow.run(
                said,
                known,
                cond,
                voices,
                counts,
                torch.zeros(rows, dtype=torch.int64),
                table,
                keep,
                conv,
                self.state,
            )
        for row, speech in enumerate(group):
            speech.conv, speech.solved = conv[row], speech.clip_blocks

    def whole(self, speech: Speech, groups: Sequence[int] | None = None) -> Tensor:
        """Mel frames [2 new, 80] of one request, alone, in runs of so many blocks each."""
        own = self.take(speech.blocks - len(speech.pages))
        speech.pages += own
        parts = []
        for blocks in groups or [speech.blocks - speech.solved]:
            end = min((speech.solved + blocks) * BLOCK_CODES + AHEAD, speech.prompt + speech.new)
            start = speech.solved
            (mel,) = self.run([speech], blocks, {speech.name: end})
            real = min((start + blocks) * BLOCK_CODES, end) - start * BLOCK_CODES
            parts.append(mel[: CODE_FRAMES * real])
        mel = torch.cat(parts)
        self._free += own
        return mel[len(mel) - CODE_FRAMES * speech.new :]


class VocoderRig:
    """The small vocoder with rows for some slots."""

    def __init__(self, slots: int = 4, dtype: str = "float32") -> None:
        self.vocoder = vocoder(dtype)
        self.slots = slots
        self.state = allocate(vocoder_state(SMALL_VOCODER), {"row": slots}, dtype)

    def chunk(
        self, frames: Mapping[int, Tensor], firsts: Mapping[int, int], last: Mapping[int, bool]
    ) -> dict[int, Tensor]:
        """One launch of slot -> mel frames [F, 80], padded to the longest, with a padding row."""
        width = max(len(part) for part in frames.values())
        mel = torch.full((len(frames) + 1, width, 80), 5.0)
        for row, part in enumerate(frames.values()):
            mel[row, : len(part)] = part
        with torch.inference_mode():
            audio = self.vocoder.run(
                mel,
                torch.tensor([*(len(part) for part in frames.values()), 0]),
                torch.tensor([*(firsts[slot] == 0 for slot in frames), False]),
                torch.tensor([*(last[slot] for slot in frames), False]),
                torch.tensor([*frames, self.slots]),
                self.state,
            )
        counts = [
            emitted_samples(SMALL_VOCODER, firsts[slot], len(part), last[slot])
            for slot, part in frames.items()
        ]
        return {slot: audio[row, : counts[row]].clone() for row, slot in enumerate(frames)}

    def say(self, mel: Tensor, cuts: Sequence[int], slot: int = 1) -> Tensor:
        """The sound of mel frames [F, 80] in chunks of these sizes."""
        parts, first = [], 0
        for size in cuts:
            part, last = mel[first : first + size], first + size == len(mel)
            parts.append(self.chunk({slot: part}, {slot: first}, {slot: last})[slot])
            first += size
        assert first == len(mel)
        return torch.cat(parts)
