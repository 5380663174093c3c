"""The four stages of Qwen3-TTS over rows of state (`voxserve.plugin.SpeechModel`)."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from voxserve.models.qwen3_tts.config import Qwen3Config
from voxserve.models.qwen3_tts.layout import CLIP, CODE, SPEAKER, TEXT
from voxserve.models.qwen3_tts.limits import CONTROL_CODES, PAGE_UNITS, POOL
from voxserve.models.qwen3_tts.weights import (
    Codec,
    LanguageModel,
    load_codec,
    load_language_model,
)
from voxserve.nn.paging import PagedSlots
from voxserve.nn.rows import Rows, put_rows
from voxserve.nn.sampling import Sampling, choose, gumbel, penalise
from voxserve.plugin import Checkpoint, Inputs, Outputs, State, Target

if TYPE_CHECKING:
    from voxserve.models.qwen3_tts.fused_codec import FusedDecoder
    from voxserve.models.qwen3_tts.fused_lm import FusedTalker

WARM_FRAMES = 25
"""Frames of a clip that the codec takes at a time while it is brought behind the clip."""


class Qwen3Model:
    """Both halves of a checkpoint, loaded, and the stages.

    steps, sounds: what runs the LM's steps and the codec's decoder in place of the plain layers.
    """

    def __init__(
        self,
        config: Qwen3Config,
        language: LanguageModel,
        codec: Codec,
        *,
        steps: "FusedTalker | None" = None,
        sounds: "FusedDecoder | None" = None,
    ) -> None:
        self.config = config
        self.language = language
        self.talker = language.talker
        self.sound = codec
        self.fused_steps = steps
        self.fused_sounds = sounds

    @property
    def row_invariant(self) -> bool:
        """What `voxserve.plugin.row_invariant` asks: only the fused kernels have fixed tiles."""
        return self.fused_steps is not None and self.fused_sounds is not None

    @torch.inference_mode()
    def prefill(self, io: Inputs, state: State) -> Outputs:
        slots, lengths, rows = io["slots"], io["lengths"], io["rows"]
        paged = self._paged(state)
        started = {
            "pages": paged.table(io[f"pages_{POOL}"]),
            "prompt": lengths,
            "said": state["lm.said"].new_zeros(len(slots), self.config.talker.codes),
            "sampling": io["sampling"],
            "seed": io["seeds"],
            "ignore_eos": io["ignore_eos"],
        }
        for name, value in started.items():
            put_rows(state[f"lm.{name}"], slots, value)
        if self.config.clones:
            self._start_codec(slots, io["clips"], rows, state)
        x = self._embed(rows, io["clips"], state)
        if self.fused_steps is not None:
            return {"codes": self.fused_steps.prefill(x, slots, lengths, state)}
        positions, attends = paged.prompts(slots, started["pages"], lengths, rows.shape[1])
        hidden = self.talker.model.run(x, positions, attends)
        last = hidden.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, hidden.shape[2]))
        return {"codes": self._speak(last[:, 0], slots, torch.zeros_like(lengths), state)}

    @torch.inference_mode()
    def decode(self, io: Inputs, state: State) -> Outputs:
        slots, steps = io["slots"], io["steps"]
        if self.fused_steps is not None:
            return {"codes": self.fused_steps.decode(slots, steps, io["inject"], state)}
        x = self.talker.frame(state["lm.codes"][slots]) + self.talker.text(io["inject"][:, 0])
        positions, attends = self._paged(state).next(slots, steps)
        hidden = self.talker.model.run(x[:, None], positions, attends)
        return {"codes": self._speak(hidden[:, 0], slots, steps, state)}

    @torch.inference_mode()
    def codec(self, io: Inputs, state: State) -> Outputs:
        slots, fresh, lengths = io["slots"], io["fresh"], io["lengths"]
        if self.config.clones:
            fresh = fresh & ~state["codec.continues"][slots]
        if self.fused_sounds is not None:
            return {"audio": self.fused_sounds.chunk(io["codes"], slots, lengths, fresh, state)}
        rows = Rows(state, "codec.", slots, fresh)
        conv, window, seen = rows.take("conv"), rows.take("window"), rows.take("seen")
        codes = io["codes"].clamp(0, self.config.decoder.codes - 1)
        audio, conv, window = self.sound.decoder(codes, conv, window, seen, lengths)
        rows.put("conv", conv)
        rows.put("window", window)
        rows.put("seen", seen + lengths)
        return {"audio": audio.float()}

    @torch.inference_mode()
    def encode(self, io: Inputs, state: State) -> Outputs:
        assert self.sound.encoder is not None and self.language.speaker_encoder is not None
        clips, audio, lengths = io["clips"], io["audio"], io["lengths"]
        dtype = state["clip.codec.conv"].dtype
        codes = self.sound.encoder(audio.to(dtype), lengths)
        frames = -(-lengths // self.sound.encoder.samples_per_frame)
        held = state["clip.codes"]
        room = held.new_zeros(len(clips), *held.shape[1:])
        room[:, : codes.shape[1]] = codes[:, : held.shape[1]]
        put_rows(held, clips, room)
        put_rows(state["clip.speaker"], clips, self.language.speaker_encoder(audio, lengths))
        conv = state["clip.codec.conv"].new_zeros(len(clips), self.config.decoder.conv_state)
        window = state["clip.codec.window"].new_zeros(len(clips), *self.config.decoder.window_state)
        seen = torch.zeros_like(lengths)
        for first in range(0, codes.shape[1], WARM_FRAMES):
            part = codes[:, first : first + WARM_FRAMES]
            real = (frames - first).clamp(0, part.shape[1])
            _, conv, window = self.sound.decoder(part, conv, window, seen, real)
            seen = seen + real
        if self.fused_sounds is not None:
            conv, window = self.fused_sounds.from_reference(conv, window, seen)
        put_rows(state["clip.codec.conv"], clips, conv)
        put_rows(state["clip.codec.window"], clips, window)
        put_rows(state["clip.codec.seen"], clips, seen)
        return {}

    def _paged(self, state: State) -> PagedSlots:
        return PagedSlots(state, "lm.", self.config.talker.body.layers, PAGE_UNITS)

    def _embed(self, rows: Tensor, clips: Tensor, state: State) -> Tensor:
        """Prompt rows [B, T, 3] -> [B, T, H]: the text side plus the code side of each."""
        x, clip = self.talker.code(rows[..., CODE]), rows[..., CLIP]
        if self.config.clones:
            codes = state["clip.codes"][clips]
            place = clip.clamp(min=0)[..., None].expand(-1, -1, codes.shape[2])
            said = self.talker.frame(codes.gather(1, place))
            x = torch.where((clip >= 0)[..., None], said, x)
            voice = state["clip.speaker"][clips].to(x.dtype)[:, None]
            x = torch.where((clip == SPEAKER)[..., None], voice, x)
        return x + self.talker.text(rows[..., TEXT])

    def _start_codec(self, slots: Tensor, clips: Tensor, rows: Tensor, state: State) -> None:
        """Let the codec go on from behind the clip where the prompt holds the clip's frames."""
        put_rows(state["codec.continues"], slots, (rows[..., CLIP] >= 0).any(dim=1))
        for name in ("conv", "window", "seen"):
            put_rows(state[f"codec.{name}"], slots, state[f"clip.codec.{name}"][clips])

    def _speak(self, hidden: Tensor, slots: Tensor, steps: Tensor, state: State) -> Tensor:
        """Sample the codes [B, K] of a step from its hidden state [B, H]."""
        talker, values = self.config.talker, state["lm.sampling"][slots]
        seeds, said = state["lm.seed"][slots], state["lm.said"][slots]
        first = Sampling.of(values[:, 0], values[:, 1], values[:, 2])
        rest = Sampling.of(values[:, 5], values[:, 6], values[:, 7])
        mute = (steps < values[:, 4]) | state["lm.ignore_eos"][slots]
        noise = gumbel(seeds, steps, range(talker.codebooks), max(talker.codes, talker.depth_codes))

        def pick(logits: Tensor, codebook: int) -> Tensor:
            luck = noise[:, codebook, : logits.shape[1]]
            if codebook:
                return choose(logits, rest, luck)
            logits = penalise(logits, said, values[:, 3])
            end = torch.where(mute, -torch.inf, logits[:, talker.control.eos])
            logits[:, talker.codes - CONTROL_CODES :] = -torch.inf
            logits[:, talker.control.eos] = end
            return choose(logits, first, luck)

        codes = self.talker.speak(hidden, pick)
        said.scatter_(1, codes[:, :1], True)
        put_rows(state["lm.said"], slots, said)
        put_rows(state["lm.codes"], slots, codes)
        return codes


def load(checkpoint: Checkpoint, target: Target) -> Qwen3Model:
    """The model with its weights on the target's device.

    Raises CheckpointError where they do not fit, ValueError for sizes that no fused kernel has.
    """
    config = Qwen3Config.read(checkpoint)
    device, kind = target.device, getattr(torch, target.dtype)
    language = load_language_model(checkpoint, config, device, kind)
    codec = load_codec(checkpoint, config, device, kind)
    steps, sounds = None, None
    if target.lm_kernels == "fused":
        from voxserve.models.qwen3_tts.fused_lm import FusedTalker

        steps = FusedTalker(language.talker, config.talker)
    if target.codec_kernels == "fused":
        from voxserve.models.qwen3_tts.fused_codec import FusedDecoder

        sounds = FusedDecoder(codec.decoder)
    return Qwen3Model(config, language, codec, steps=steps, sounds=sounds)
