"""The four stages of Higgs Audio v3 over rows of state (`voxserve.plugin.SpeechModel`)."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from voxserve.models.higgs_audio_v3.codec import HiggsCodec
from voxserve.models.higgs_audio_v3.config import HiggsConfig
from voxserve.models.higgs_audio_v3.layout import CLIP, TEXT
from voxserve.models.higgs_audio_v3.limits import PAGE_UNITS, POOL
from voxserve.models.higgs_audio_v3.lm import HiggsLm
from voxserve.models.higgs_audio_v3.weights import load_codec, load_lm
from voxserve.nn.paging import PagedSlots
from voxserve.nn.rows import put_rows
from voxserve.nn.sampling import Sampling, choose, gumbel
from voxserve.plugin import Checkpoint, Inputs, Outputs, State, Target

if TYPE_CHECKING:
    from voxserve.models.higgs_audio_v3.fused_lm import FusedHiggs


class HiggsModel:
    """Both halves of a checkpoint, loaded, and the stages.

    fused: what runs the LM's steps in place of the plain layers.
    """

    def __init__(
        self,
        config: HiggsConfig,
        lm: HiggsLm,
        sound: HiggsCodec,
        *,
        fused: "FusedHiggs | None" = None,
    ) -> None:
        self.config = config
        self.lm = lm
        self.sound = sound
        self.fused = fused

    @torch.inference_mode()
    def prefill(self, io: Inputs, state: State) -> Outputs:
        slots, lengths, rows = io["slots"], io["lengths"], io["rows"]
        paged = self._paged(state)
        started = {
            "pages": paged.table(io[f"pages_{POOL}"]),
            "prompt": lengths,
            "sampling": io["sampling"],
            "seed": io["seeds"],
            "ignore_eos": io["ignore_eos"],
        }
        for name, value in started.items():
            put_rows(state[f"lm.{name}"], slots, value)
        x, first = self._embed(rows, io["clips"], state), torch.zeros_like(lengths)
        if self.fused is not None:
            logits = self.fused.prefill(x, slots, lengths, state)
            return {"codes": self._say(logits, slots, first, state)}
        positions, attends = paged.prompts(slots, started["pages"], lengths, rows.shape[1])
        hidden = self.lm.body.run(x, positions, attends)
        last = hidden.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, hidden.shape[2]))
        return {"codes": self._say(self.lm.logits(last[:, 0]), slots, first, state)}

    @torch.inference_mode()
    def decode(self, io: Inputs, state: State) -> Outputs:
        slots, steps = io["slots"], io["steps"]
        if self.fused is not None:
            logits = self.fused.decode(slots, steps, io["inject"], state)
            return {"codes": self._say(logits, slots, steps, state)}
        x = self.lm.heard(state["lm.codes"][slots])
        positions, attends = self._paged(state).next(slots, steps)
        hidden = self.lm.body.run(x[:, None], positions, attends)
        return {"codes": self._say(self.lm.logits(hidden[:, 0]), slots, steps, state)}

    @torch.inference_mode()
    def codec(self, io: Inputs, state: State) -> Outputs:
        left, right = self.config.context
        audio = self.sound.decode(io["codes"], io["valid"], left, right)
        return {"audio": audio.clamp(-1.0, 1.0)}

    @torch.inference_mode()
    def encode(self, io: Inputs, state: State) -> Outputs:
        codes, frames = self.sound.encode(io["audio"], io["lengths"])
        held = state["clip.rows"]
        put_rows(held, io["clips"], self._delayed(codes, frames, held.shape[1]))
        return {}

    def _paged(self, state: State) -> PagedSlots:
        return PagedSlots(state, "lm.", self.config.body.layers, PAGE_UNITS)

    def _embed(self, rows: Tensor, clips: Tensor, state: State) -> Tensor:
        """Prompt rows [B, T, 2] -> [B, T, H]: the embedding of a text id or of a row of codes."""
        clip, held = rows[..., CLIP], state["clip.rows"]
        codes = held[clips[:, None], clip.clamp(min=0, max=held.shape[1] - 1)]
        text = self.lm.text(rows[..., TEXT].clamp(min=0))
        return torch.where((clip >= 0)[..., None], self.lm.heard(codes), text)

    def _delayed(self, codes: Tensor, frames: Tensor, rows: int) -> Tensor:
        """codes [B, F, K] of clips with so many frames [B] -> [B, rows, K], each codebook a row
        later than the one before it; control codes stand where it has not begun or is over."""
        body = self.config.body
        book = torch.arange(body.codebooks, device=codes.device)
        place = torch.arange(rows, device=codes.device)[:, None] - book
        index = place.clamp(min=0, max=codes.shape[1] - 1).expand(len(codes), -1, -1)
        said = codes.gather(1, index).masked_fill(place < 0, body.sounds)
        return torch.where(place < frames[:, None, None], said, body.end)

    def _say(self, logits: Tensor, slots: Tensor, steps: Tensor, state: State) -> Tensor:
        """Sample the codes [B, K] of a step from its logits [B, K, codes] float32.

        All codebooks are sampled alike and apart; a codebook that has not begun says so instead.
        """
        body, mute = self.config.body, state["lm.ignore_eos"][slots]
        logits[:, 0, body.end] = torch.where(mute, -torch.inf, logits[:, 0, body.end])
        if self.fused is not None:
            codes = self.fused.choose(logits, slots, steps, state)
        else:
            noise = gumbel(state["lm.seed"][slots], steps, range(body.codebooks), body.codes)
            each = state["lm.sampling"][slots, :3].repeat_interleave(body.codebooks, dim=0)
            sampling = Sampling.of(each[:, 0], each[:, 1], each[:, 2])
            codes = choose(logits.flatten(0, 1), sampling, noise.flatten(0, 1))
            codes = codes.view(len(slots), -1)
        waits = torch.arange(body.codebooks, device=codes.device) > steps[:, None]
        codes = codes.masked_fill(waits, body.sounds)
        put_rows(state["lm.codes"], slots, codes)
        return codes


def load(checkpoint: Checkpoint, target: Target) -> HiggsModel:
    """The model with its weights on the device. Raises CheckpointError where they do not fit."""
    config = HiggsConfig.read(checkpoint)
    lm = load_lm(checkpoint, config, target.device, getattr(torch, target.dtype))
    fused = None
    if target.lm_kernels == "fused":
        from voxserve.models.higgs_audio_v3.fused_lm import FusedHiggs

        fused = FusedHiggs(lm)
    return HiggsModel(config, lm, load_codec(checkpoint, config, target.device), fused=fused)
