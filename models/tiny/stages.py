"""The four stages of tiny over rows of state (`voxserve.plugin.SpeechModel`)."""

import torch
from torch import Tensor, nn

from voxserve.models.tiny.codec import Codec
from voxserve.models.tiny.config import NEVER, PAGE_UNITS, POOL, TEXT_END, TinyConfig
from voxserve.models.tiny.encoder import Encoder
from voxserve.models.tiny.lm import Lm
from voxserve.nn.paging import PagedSlots
from voxserve.nn.rows import Rows, put_rows
from voxserve.nn.sampling import Sampling, choose, gumbel, penalise
from voxserve.plugin import Inputs, Outputs, State


class TinyModel(nn.Module):
    """All modules of tiny, and the stages."""

    def __init__(self, config: TinyConfig) -> None:
        super().__init__()
        self.config = config
        self.lm = Lm(config)
        self.codec_net = Codec(config.codec, config.codebooks, config.codes)
        self.encoder = Encoder(config.encoder, config.lm.hidden)

    @torch.inference_mode()
    def prefill(self, io: Inputs, state: State) -> Outputs:
        slots, lengths, rows = io["slots"], io["lengths"], io["rows"]
        paged = self._paged(state)
        table = paged.table(io[f"pages_{POOL}"])
        started = {
            "pages": table,
            "prompt": lengths,
            "text_end": torch.full_like(lengths, NEVER),
            "said": state["lm.said"].new_zeros(len(slots), self.config.codes + 1),
            "sampling": io["sampling"],
            "seed": io["seeds"],
            "ignore_eos": io["ignore_eos"],
        }
        for name, value in started.items():
            put_rows(state[f"lm.{name}"], slots, value)
        speaker = state["lm.speaker"][io["clips"]]
        x = self.lm.text(rows[..., 0]) + self.lm.first(rows[..., 1])
        x = x + torch.where((rows[..., 1] == self.config.code_clip)[..., None], speaker[:, None], 0)
        positions, attends = paged.prompts(slots, table, lengths, rows.shape[1])
        hidden = self.lm(x, positions, attends)
        last = hidden.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, hidden.shape[2]))
        return {"codes": self._frame(last, slots, torch.zeros_like(lengths), state)}

    @torch.inference_mode()
    def decode(self, io: Inputs, state: State) -> Outputs:
        slots, steps, text = io["slots"], io["steps"], io["inject"][:, 0]
        ends = torch.where(text == TEXT_END, steps, state["lm.text_end"][slots])
        put_rows(state["lm.text_end"], slots, ends)
        x = self.lm.text(text)[:, None] + self.lm.embed_frame(state["lm.codes"][slots])
        positions, attends = self._paged(state).next(slots, steps)
        hidden = self.lm(x, positions, attends)
        return {"codes": self._frame(hidden, slots, steps, state)}

    @torch.inference_mode()
    def codec(self, io: Inputs, state: State) -> Outputs:
        rows = Rows(state, "codec.", io["slots"], io["fresh"])
        first = torch.where(io["fresh"], 0, io["first_frame"])
        audio = self.codec_net(io["codes"], io["lengths"], first, rows)
        return {"audio": audio.float()}

    @torch.inference_mode()
    def encode(self, io: Inputs, state: State) -> Outputs:
        audio = io["audio"].to(self.lm.output.weight.dtype)
        put_rows(state["lm.speaker"], io["clips"], self.encoder(audio, io["lengths"]))
        return {}

    def _paged(self, state: State) -> PagedSlots:
        return PagedSlots(state, "lm.", self.config.lm.layers, PAGE_UNITS)

    def _frame(self, hidden: Tensor, slots: Tensor, steps: Tensor, state: State) -> Tensor:
        """Sample the codes [B, K] of a step from its hidden state [B, 1, hidden]."""
        config = self.config
        values = state["lm.sampling"][slots]
        sampling = Sampling.of(values[:, 0], values[:, 1], values[:, 2])
        seeds, said = state["lm.seed"][slots], state["lm.said"][slots]
        noise = gumbel(seeds, steps, range(config.codebooks), config.codes + 1)
        logits = penalise(self.lm.output(hidden[:, 0]).float(), said, values[:, 3])
        since_end = (steps - state["lm.text_end"][slots]).clamp(min=0)
        end = logits[:, config.eos] + config.eos_offset + config.eos_slope * since_end
        mute = (steps < values[:, 4]) | state["lm.ignore_eos"][slots]
        logits[:, config.eos] = torch.where(mute, -torch.inf, end)
        code = choose(logits, sampling, noise[:, 0])
        said.scatter_(1, code.unsqueeze(1), True)
        put_rows(state["lm.said"], slots, said)
        embedded = self.lm.first(code)[:, None]
        frame: Tensor = self.lm.depth(
            hidden,
            code,
            embedded,
            lambda logits, book: choose(logits, sampling, noise[:, book, : config.codes]),
        )
        put_rows(state["lm.codes"], slots, frame)
        return frame
