"""Drives the small models as the engine does: slots, pages, buckets, one step a launch."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.parity.qwen3_tts.checkpoint import make_checkpoint, speech_like
from voxserve.models.qwen3_tts.host import Qwen3Host
from voxserve.models.qwen3_tts.limits import POOL
from voxserve.models.qwen3_tts.stages import Qwen3Model, load
from voxserve.plugin import Checkpoint, ModelSpec, Target
from voxserve.requests import Prompt, ReferenceClip, SpeechRequest

HERE = Path(__file__).parent
GOLDENS: dict[str, Tensor] = load_file(HERE / "goldens.safetensors")
REPORT: dict[str, Any] = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))
CASES: list[dict[str, Any]] = REPORT["cases"]
EOS = 2150


@cache
def checkpoint(name: str) -> Checkpoint:
    """The small checkpoint `kind-size`, in a temporary folder of this process."""
    folder = Path(mkdtemp(prefix="qwen3-tts-"))
    kind, size = name.split("-")
    make_checkpoint(folder, kind, size)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return Checkpoint(name, folder, config)


@cache
def host(name: str) -> Qwen3Host:
    return Qwen3Host(checkpoint(name))


@cache
def model(name: str, dtype: str = "float32") -> Qwen3Model:
    torch.set_num_threads(1)
    return load(checkpoint(name), Target("cpu", dtype))


def allocate(spec: ModelSpec, slots: int, pages: int, clips: int, dtype: str) -> dict[str, Tensor]:
    """State filled with rubbish: whoever reads what nobody wrote is found out."""
    rows = {"row": slots, "page": pages, "clip": clips}
    state = {}
    for tensor in spec.state:
        kind = getattr(torch, dtype if tensor.dtype == "model" else tensor.dtype)
        state[tensor.name] = torch.full((rows[tensor.scope] + 1, *tensor.shape), 1, dtype=kind)
    return state


def request(case: dict[str, Any], frames: int | None = None) -> SpeechRequest:
    """A golden case as a client's request, greedy. frames: fewer than the case has."""
    limit = case.get("max_new_tokens", REPORT["defaults"]["max_new_tokens"]) - 1
    clip = None
    if "clip_s" in case:
        key = str(case["clip_s"])
        clip = ReferenceClip(key, speech_like(case["clip_s"]), case.get("ref_text"))
    return SpeechRequest(
        text=case["text"],
        voice=case.get("speaker"),
        language=case.get("language"),
        instructions=case.get("instruct"),
        clip=clip,
        speaker_only="ref_text" not in case,
        temperature=0.0,
        repetition_penalty=case.get("repetition_penalty"),
        max_frames=min(limit, frames or limit),
        extra={
            "subtalker_temperature": 0.0,
            "non_streaming_mode": not case.get("streamed", False),
        },
    )


@dataclass
class Running:
    slot: int
    prompt: Prompt
    codes: list[Tensor]
    over: bool = False


class Rig:
    """One model with state for some slots."""

    def __init__(
        self, host: Qwen3Host, model: Qwen3Model, slots: int = 4, dtype: str = "float32"
    ) -> None:
        self.host, self.model, self.spec, self.slots = host, model, host.spec, slots
        self.pages = 6
        self.clips = 4 if host.config.clones else 0
        self.state = allocate(self.spec, slots, slots * self.pages, self.clips, dtype)
        self._clip_rows: dict[str, int] = {}

    def pages_of(self, slot: int) -> list[int]:
        """The pages of a slot, out of order: number p of slot s is p * slots + s."""
        return [page * self.slots + slot for page in range(self.pages)]

    def encode(self, clips: Sequence[ReferenceClip]) -> None:
        """All clips in one batch, padded to the longest one's bucket."""
        longest = max(len(clip.audio) for clip in clips) / 24000
        seconds = next(s for s in self.spec.encode_seconds if s >= longest)
        audio = np.zeros((len(clips) + 1, seconds * 24000), np.float32)
        for row, clip in enumerate(clips):
            audio[row, : len(clip.audio)] = clip.audio
            self._clip_rows[clip.key] = len(clips) - 1 - row
        lengths = [*(len(clip.audio) for clip in clips), 24000]
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
        rows = np.zeros((len(slots), bucket, 3), np.int64)
        for row, prompt in enumerate(prompts.values()):
            rows[row, : len(prompt.rows)] = prompt.rows
        every = list(prompts.values())
        every.append(every[0])
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
        running = [
            Running(slot, prompt, [out[row]]) for row, (slot, prompt) in enumerate(prompts.items())
        ]
        for one in running:
            _check_over(one)
        return running

    def decode(self, running: Sequence[Running]) -> None:
        """One step of all that are not over, with a padding row."""
        active = [one for one in running if not one.over]
        steps = [len(one.codes) for one in active]
        inject = [
            one.prompt.inject[step - 1].tolist()
            if step <= len(one.prompt.inject)
            else list(self.spec.pad_row)
            for one, step in zip(active, steps, strict=True)
        ]
        out = self.model.decode(
            {
                "slots": torch.tensor([*(one.slot for one in active), self.slots]),
                "steps": torch.tensor([*steps, 1]),
                "inject": torch.tensor([*inject, list(self.spec.pad_row)]),
            },
            self.state,
        )["codes"]
        for row, one in enumerate(active):
            one.codes.append(out[row])
            _check_over(one)

    def speak(self, prompts: Sequence[Prompt]) -> list[Tensor]:
        """The codes [F, K] of each prompt; slots are handed out from the last one down."""
        clips = {p.clip.key: p.clip for p in prompts if p.clip is not None}
        if clips:
            self.encode(list(clips.values()))
        running = self.prefill({self.slots - 1 - i: p for i, p in enumerate(prompts)})
        while any(not one.over for one in running):
            self.decode(running)
        return [torch.stack(one.codes) if one.codes else torch.zeros(0, 16) for one in running]

    def sound(self, slot: int, codes: Tensor, cuts: Sequence[int]) -> Tensor:
        """Audio of codes [F, K], decoded in chunks of these sizes."""
        first, parts = 0, []
        for size in cuts:
            chunk = codes[first : first + size]
            parts.append(self.chunk({slot: chunk}, {slot: first})[slot])
            first += size
        assert first == len(codes)
        return torch.cat(parts)

    def chunk(self, chunks: dict[int, Tensor], firsts: dict[int, int]) -> dict[int, Tensor]:
        """One codec launch of slot -> codes [F, K], padded to its bucket, with a padding row."""
        bucket = max(len(codes) for codes in chunks.values())
        bucket = next((b for b in self.spec.frame_buckets if b >= bucket), bucket)
        codes = torch.zeros(len(chunks) + 1, bucket, 16, dtype=torch.int64)
        lengths = [*(len(part) for part in chunks.values()), bucket]
        for row, part in enumerate(chunks.values()):
            codes[row, : len(part)] = part
        first = [*(firsts[slot] for slot in chunks), 0]
        length = torch.tensor(lengths)
        audio = self.model.codec(
            {
                "slots": torch.tensor([*chunks, self.slots]),
                "codes": codes,
                "valid": torch.arange(bucket) < length[:, None],
                "lengths": length,
                "first_frame": torch.tensor(first),
                "fresh": torch.tensor([at == 0 for at in first]),
                "last": torch.zeros(len(lengths), dtype=torch.bool),
            },
            self.state,
        )["audio"]
        hop = self.spec.samples_per_frame
        return {s: audio[i, : lengths[i] * hop].clone() for i, s in enumerate(chunks)}


def _check_over(one: Running) -> None:
    if int(one.codes[-1][0]) == EOS:
        one.codes.pop()
        one.over = True
    elif len(one.codes) >= one.prompt.max_steps:
        one.over = True


def rig_for(name: str, slots: int = 4) -> Rig:
    return Rig(host(name), model(name), slots)
