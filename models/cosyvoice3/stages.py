"""The four stages of CosyVoice 3 over rows of state and pages (`voxserve.plugin.SpeechModel`)."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.cosyvoice3.config import CosyVoiceConfig
from voxserve.models.cosyvoice3.encoder import ClipEncoder
from voxserve.models.cosyvoice3.flow import Flow
from voxserve.models.cosyvoice3.limits import (
    AHEAD,
    BLOCK,
    FLOW_POOL,
    LEFT,
    LM_POOL,
    PAGE_UNITS,
    TAIL,
    clip_blocks,
)
from voxserve.models.cosyvoice3.lm import LanguageModel, Sampler
from voxserve.models.cosyvoice3.vocoder import Vocoder
from voxserve.nn.paging import PagedSlots
from voxserve.nn.rows import put_rows
from voxserve.plugin import Inputs, Outputs, State

if TYPE_CHECKING:
    from voxserve.models.cosyvoice3.fused_lm import FusedLm


class CosyVoiceModel(nn.Module):
    """All modules of a checkpoint, loaded, and the stages.

    fused: what runs the language model's steps in place of the plain layers.
    """

    def __init__(
        self,
        config: CosyVoiceConfig,
        lm: LanguageModel,
        flow: Flow,
        vocoder: Vocoder,
        encoder: ClipEncoder,
        *,
        fused: "FusedLm | None" = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.lm = lm
        self.flow = flow
        self.vocoder = vocoder
        self.encoder = encoder
        self.fused = fused
        self.sampler = Sampler(config.lm, config.repetition)

    @torch.inference_mode()
    def prefill(self, io: Inputs, state: State) -> Outputs:
        slots, lengths, rows, clips = io["slots"], io["lengths"], io["rows"], io["clips"]
        paged = self._paged(state)
        table = paged.table(io[f"pages_{LM_POOL}"])
        blocks = io[f"pages_{FLOW_POOL}"]
        started = {
            "lm.pages": table,
            "lm.prompt": lengths,
            "lm.recent": torch.full_like(state["lm.recent"][slots], -1),
            "lm.said": torch.zeros_like(state["lm.said"][slots]),
            "lm.sampling": io["sampling"],
            "lm.seed": io["seeds"],
            "lm.ignore_eos": io["ignore_eos"],
            "codec.clip": clips,
            "codec.pages": _widened(blocks, state["codec.pages"], _spare(state, "flow.kv.0")),
        }
        for name, value in started.items():
            put_rows(state[name], slots, value)
        x = self.lm.embed(rows, state["clip.codes"][clips])
        if self.fused is not None:
            return {"codes": self.fused.prefill(x, slots, lengths, state)[:, None]}
        positions, attends = paged.prompts(slots, table, lengths, rows.shape[1])
        hidden = self.lm.run(x, positions, attends)
        last = hidden.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, hidden.shape[2]))
        return {"codes": self._speak(last[:, 0], slots, torch.zeros_like(lengths), state)}

    @torch.inference_mode()
    def decode(self, io: Inputs, state: State) -> Outputs:
        slots, steps = io["slots"], io["steps"]
        if self.fused is not None:
            return {"codes": self.fused.decode(slots, steps, state)[:, None]}
        x = self.lm.speech_embedding(state["lm.code"][slots])[:, None]
        positions, attends = self._paged(state).next(slots, steps)
        hidden = self.lm.run(x, positions, attends)
        return {"codes": self._speak(hidden[:, 0], slots, steps, state)}

    @torch.inference_mode()
    def codec(self, io: Inputs, state: State) -> Outputs:
        """One block a row. In a first chunk the clip's last codes stand before the new ones."""
        slots, fresh = io["slots"], io["fresh"]
        clip = state["codec.clip"][slots]
        count = state["clip.count"][clip]
        seen = seen_codes(count)
        at = seen + io["first_frame"]
        block = at // BLOCK
        before = at - block * BLOCK
        lengths = torch.minimum(io["lengths"], BLOCK - before)  # beyond it only in a warm-up
        new = torch.arange(-LEFT, BLOCK + AHEAD, device=slots.device) - before[:, None]
        given = (new + LEFT).clamp(0, io["codes"].shape[1] - 1)
        old = (count - seen + at)[:, None] + new
        is_old = old < count[:, None]
        codes = torch.where(
            is_old,
            _picked(state["clip.codes"][clip], old),
            _picked(io["codes"][..., 0], given),
        )
        known = is_old | (io["valid"].gather(1, given) & (new + LEFT < io["codes"].shape[1]))
        frames = 2 * (count - seen)[:, None] + 2 * BLOCK * block[:, None]
        frames = frames + torch.arange(2 * BLOCK, device=slots.device)
        prompt = _picked(state["clip.mel"][clip], frames)
        cond = torch.where((frames < 2 * count[:, None])[..., None], prompt, 0.0)
        contexts = state["flow.conv"]
        first = fresh.view(-1, *([1] * (contexts.dim() - 1)))
        conv = torch.where(first, state["clip.flow.conv"][clip], contexts[slots])
        mel, conv = self.flow.run(
            codes,
            known,
            cond,
            state["clip.speaker"][clip],
            before + lengths,
            block,
            state["codec.pages"][slots],
            self._paged(state).real(slots),
            conv,
            state,
        )
        put_rows(contexts, slots, conv)
        place = 2 * before[:, None] + torch.arange(2 * BLOCK, device=slots.device)
        heard = _picked(mel, place)
        return {"audio": self.vocoder.run(heard, 2 * lengths, fresh, io["last"], slots, state)}

    @torch.inference_mode()
    def encode(self, io: Inputs, state: State) -> Outputs:
        """The clip's features, and the flow over its full blocks, once for all who speak so."""
        clips, table = io["clips"], io[f"pages_{FLOW_POOL}"]
        found = self.encoder(io["audio"], io["lengths"])
        count, speaker = found.count, self.flow.speaker(found.speaker)
        features = {
            "clip.codes": _widened(found.codes, state["clip.codes"]),
            "clip.count": count,
            "clip.mel": _widened(found.mel, state["clip.mel"]),
            "clip.speaker": speaker,
        }
        for name, value in features.items():
            put_rows(state[name], clips, value)
        most = clip_blocks(found.codes.shape[1])
        blocks = (seen_codes(count) - TAIL) // BLOCK
        start = (count - seen_codes(count))[:, None]
        codes = start + torch.arange(-LEFT, most * BLOCK + AHEAD, device=clips.device)
        frames = 2 * start + torch.arange(2 * most * BLOCK, device=clips.device)
        contexts = state["clip.flow.conv"]
        missing = max(most - table.shape[1], 0)
        _, conv = self.flow.run(
            _picked(found.codes, codes),
            (codes >= start) & (codes < count[:, None]),
            _picked(found.mel, frames),
            speaker,
            blocks * BLOCK,
            torch.zeros_like(blocks),
            functional.pad(table, (0, missing), value=_spare(state, "flow.kv.0")),
            torch.arange(most, device=clips.device) < blocks[:, None],
            contexts.new_zeros(len(clips), *contexts.shape[1:]),
            state,
        )
        put_rows(contexts, clips, conv)
        return {}

    def _paged(self, state: State) -> PagedSlots:
        return PagedSlots(state, "lm.", self.config.lm.layers, PAGE_UNITS)

    def _speak(self, hidden: Tensor, slots: Tensor, steps: Tensor, state: State) -> Tensor:
        """The code [B, 1] of a step from its hidden state [B, hidden]."""
        said, recent = state["lm.said"][slots], state["lm.recent"][slots]
        code = self.sampler.draw(
            self.lm.llm_decoder(hidden).float(),
            state["lm.sampling"][slots],
            state["lm.seed"][slots],
            steps,
            state["lm.ignore_eos"][slots],
            said,
            recent,
        )
        put_rows(state["lm.said"], slots, said.scatter_(1, code[:, None], True))
        put_rows(state["lm.recent"], slots, torch.cat((recent[:, 1:], code[:, None]), dim=1))
        put_rows(state["lm.code"], slots, code)
        return code[:, None]


def seen_codes(count: Tensor) -> Tensor:
    """Codes of a clip of `count` [B] int64 that the flow sees: full blocks and the tail."""
    return (count - TAIL).clamp(min=0) // BLOCK * BLOCK + TAIL


def _spare(state: State, name: str) -> int:
    return len(state[name]) - 1


def _widened(x: Tensor, held: Tensor, value: int = 0) -> Tensor:
    """x [B, N, ...] cut or filled up to the width of state `held` [rows, M, ...]."""
    missing = held.shape[1] - x.shape[1]
    return functional.pad(x, (0,) * (2 * (x.dim() - 2)) + (0, missing), value=value)


def _picked(x: Tensor, place: Tensor) -> Tensor:
    """x [B, N, ...] at `place` [B, T] int64, which is clamped into it -> [B, T, ...]."""
    place = place.clamp(0, x.shape[1] - 1)
    return x[torch.arange(len(x), device=x.device)[:, None], place]
