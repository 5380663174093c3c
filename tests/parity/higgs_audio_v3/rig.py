"""Drives the small model as the engine does: slots, pages, buckets, one step a launch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.parity.higgs_audio_v3.checkpoint import make_checkpoint, speech_like
from voxserve.models.higgs_audio_v3.host import HiggsHost
from voxserve.models.higgs_audio_v3.limits import POOL
from voxserve.models.higgs_audio_v3.stages import HiggsModel, load
from voxserve.plugin import Checkpoint, EndReason, ModelSpec, Target
from voxserve.requests import Prompt, ReferenceClip, SpeechRequest

HERE = Path(__file__).parent
GOLDENS: dict[str, Tensor] = load_file(HERE / "goldens.safetensors")
REPORT: dict[str, Any] = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
CASES: list[dict[str, Any]] = REPORT["cases"]
BOOKS, SOUNDS, HOP, RATE = 8, 1024, 960, 24_000


@cache
def checkpoint() -> Checkpoint:
    """The small checkpoint, in a temporary folder of this process."""
    folder = Path(mkdtemp(prefix="higgs-audio-v3-"))
    make_checkpoint(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Checkpoint("small", folder, config)


@cache
def host() -> HiggsHost:
    return HiggsHost(checkpoint())


@cache
def model() -> HiggsModel:
    torch.set_num_threads(1)
    return load(checkpoint(), Target("cpu", "float32"))


def allocate(spec: ModelSpec, slots: int, pages: int, clips: int) -> dict[str, Tensor]:
    """State filled with rubbish: whoever reads what nobody wrote is found out."""
    rows = {"row": slots, "page": pages, "clip": clips}
    kinds = {tensor.name: tensor.dtype.replace("model", "float32") for tensor in spec.state}
    return {
        tensor.name: torch.full(
            (rows[tensor.scope] + 1, *tensor.shape), 1, dtype=getattr(torch, kinds[tensor.name])
        )
        for tensor in spec.state
    }


def request(case: dict[str, Any], frames: int | None = None) -> SpeechRequest:
    """A golden case as a client's request, greedy. frames: fewer than the case may have."""
    clip = None
    if "clip_s" in case:
        clip = ReferenceClip(str(case["clip_s"]), speech_like(case["clip_s"]), case.get("ref_text"))
    most = REPORT["steps"] - BOOKS + 1
    return SpeechRequest(
        text=case["text"], clip=clip, temperature=0.0, max_frames=min(most, frames or most)
    )


@dataclass
class Running:
    slot: int
    prompt: Prompt
    rows: list[Tensor] = field(default_factory=list)
    frames: int = 0
    ended: EndReason = EndReason.NONE


class Rig:
    """The model with state for some slots."""

    def __init__(self, host: HiggsHost, model: HiggsModel, slots: int = 4) -> None:
        self.host, self.model, self.slots = host, model, slots
        self.spec = host.spec
        self.pages, self.clips = 4, 4
        self.state = allocate(self.spec, slots, slots * self.pages, self.clips)
        self.logic = host.steps(slots)
        self._clip_rows: dict[str, int] = {}

    def pages_of(self, slot: int) -> list[int]:
        return [slot * self.pages + page for page in range(self.pages)]

    def encode(self, clips: Sequence[ReferenceClip]) -> None:
        """All clips in one batch, with a padding row."""
        longest = max(len(clip.audio) for clip in clips) / RATE
        seconds = next(s for s in self.spec.encode_seconds if s >= longest)
        audio = np.zeros((len(clips) + 1, seconds * RATE), np.float32)
        for row, clip in enumerate(clips):
            audio[row, : len(clip.audio)] = clip.audio
            self._clip_rows[clip.key] = len(clips) - 1 - row
        lengths = [*(len(clip.audio) for clip in clips), RATE]
        rows = [*(self._clip_rows[clip.key] for clip in clips), self.clips]
        self.model.encode(
            {
                "clips": torch.tensor(rows),
                "audio": torch.from_numpy(audio),
                "lengths": torch.tensor(lengths),
            },
            self.state,
        )

    def prefill(self, prompts: dict[int, Prompt]) -> list[Running]:
        """Start slot -> prompt in one batch with a padding row; clips must be encoded."""
        longest = max(len(p.rows) for p in prompts.values())
        bucket = next(b for b in self.spec.prefill_tokens if b >= longest)
        slots = [*prompts, self.slots]
        rows = np.zeros((len(slots), bucket, self.spec.prompt_columns), np.int64)
        for row, prompt in enumerate(prompts.values()):
            rows[row, : len(prompt.rows)] = prompt.rows
        every = [*prompts.values(), next(iter(prompts.values()))]
        spare = self.state["lm.kv.0"].shape[0] - 1
        pages = [*(self.pages_of(slot) for slot in prompts), [spare] * self.pages]
        clips = [self._clip_rows[p.clip.key] if p.clip else self.clips for p in every[:-1]]
        out = self.model.prefill(
            {
                "slots": torch.tensor(slots),
                "lengths": torch.tensor([len(p.rows) for p in every]),
                "rows": torch.from_numpy(rows),
                "sampling": torch.from_numpy(np.stack([p.sampling for p in every])),
                "seeds": torch.tensor([p.seed for p in every]),
                "ignore_eos": torch.tensor([p.ignore_eos for p in every]),
                "clips": torch.tensor([*clips, self.clips]),
                f"pages_{POOL}": torch.tensor(pages),
            },
            self.state,
        )["codes"]
        running = [Running(slot, prompt) for slot, prompt in prompts.items()]
        for one in running:
            self.logic.admit(one.slot, one.prompt)
        self._take(running, out)
        return running

    def decode(self, running: Sequence[Running]) -> None:
        """One step of all that are not over, with a padding row."""
        active = [one for one in running if not one.ended]
        out = self.model.decode(
            {
                "slots": torch.tensor([*(one.slot for one in active), self.slots]),
                "steps": torch.tensor([*(len(one.rows) for one in active), 1]),
                "inject": torch.tensor([list(self.spec.pad_row)] * (len(active) + 1)),
            },
            self.state,
        )["codes"]
        self._take(active, out)

    def speak(self, prompts: Sequence[Prompt]) -> list[Running]:
        """Each prompt to its end; slots are handed out from the last one down."""
        clips = {p.clip.key: p.clip for p in prompts if p.clip is not None}
        if clips:
            self.encode(list(clips.values()))
        running = self.prefill({self.slots - 1 - i: p for i, p in enumerate(prompts)})
        while any(not one.ended for one in running):
            self.decode(running)
        return running

    def sound(self, codes: Tensor, cuts: Sequence[int]) -> Tensor:
        """Audio of codes [F, K], decoded in chunks of these sizes."""
        first, parts = 0, []
        for size in cuts:
            parts.append(self.chunk({0: codes}, {0: (first, size)})[0])
            first += size
        assert first == len(codes)
        return torch.cat(parts)

    def chunk(
        self, codes: dict[int, Tensor], wanted: dict[int, tuple[int, int]]
    ) -> dict[int, Tensor]:
        """One codec launch, padded to its bucket, with a padding row: of row -> codes [F, K] the
        frames row -> (first, count)."""
        left, ahead = self.spec.left_frames, self.spec.ahead_frames
        most = max(count for _, count in wanted.values())
        bucket = next((b for b in self.spec.frame_buckets if b >= most), most)
        window = torch.zeros(len(codes) + 1, left + bucket + ahead, BOOKS, dtype=torch.int64)
        valid = torch.zeros(window.shape[:2], dtype=torch.bool)
        for row, (name, every) in enumerate(codes.items()):
            for column, frame in enumerate(range(wanted[name][0] - left, len(every))):
                if frame >= 0 and column < window.shape[1]:
                    window[row, column], valid[row, column] = every[frame], True
        rows = len(window)
        firsts = [*(first for first, _ in wanted.values()), 0]
        audio = self.model.codec(
            {
                "slots": torch.tensor([*wanted, self.slots]),
                "codes": window,
                "valid": valid,
                "lengths": torch.tensor([*(count for _, count in wanted.values()), bucket]),
                "first_frame": torch.tensor(firsts),
                "fresh": torch.tensor([first == 0 for first in firsts]),
                "last": torch.zeros(rows, dtype=torch.bool),
            },
            self.state,
        )["audio"]
        assert audio.shape == (rows, bucket * HOP)
        return {
            name: audio[row, : count * HOP].clone()
            for row, (name, (_, count)) in enumerate(wanted.items())
        }

    def _take(self, running: Sequence[Running], codes: Tensor) -> None:
        """Give the step logic what `running` have said, and note what it makes of it."""
        steps = np.array([len(one.rows) for one in running], np.int32)
        slots = np.array([one.slot for one in running], np.int32)
        said = codes[: len(running)].to(torch.int32).numpy()
        accepted = self.logic.accept(slots, steps, said)
        for row, one in enumerate(running):
            one.rows.append(codes[row])
            one.frames = int(accepted.frames[row])
            one.ended = EndReason(int(accepted.ended[row]))


def undelayed(rows: Tensor, frames: int) -> Tensor:
    """Codes [frames, K] of the delayed rows [N, K]."""
    return torch.stack([rows[book : book + frames, book] for book in range(BOOKS)], dim=1)


def random_codes(frames: int) -> Tensor:
    """Codes [frames, K], always the same."""
    from tests.parity.higgs_audio_v3.checkpoint import uniform

    return ((torch.from_numpy(uniform("codes", (frames, BOOKS))) + 1) * 512).long().clamp(0, 1023)


def rig(slots: int = 4) -> Rig:
    return Rig(host(), model(), slots)
