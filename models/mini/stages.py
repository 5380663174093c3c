"""The stages of mini over rows of state (`voxserve.plugin.SpeechModel`)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from voxserve.models.mini.codec import Codec
from voxserve.models.mini.config import BLOCK, EDGE, PAGE_FRAMES, POOL, WINDOW, MiniConfig
from voxserve.models.mini.lm import Lm
from voxserve.nn.attention import attention
from voxserve.nn.rows import Rows, put_rows
from voxserve.nn.sampling import Sampling, choose, gumbel
from voxserve.plugin import Inputs, Outputs, State


class Ring:
    """`Attend` of one layer over the last WINDOW steps, kept in place at step modulo WINDOW.

    past: [slots + 1, 2, WINDOW, H, D]. slots, steps: [B] int64, one step a row.
    used: places to look at, enough for every row's steps.
    """

    def __init__(self, past: Tensor, slots: Tensor, steps: Tensor, used: int) -> None:
        self.past, self.slots, self.place = past, slots, steps % WINDOW
        self.used = used
        self.mask = torch.arange(used, device=steps.device) <= steps[:, None, None]

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        new = torch.cat((keys, values), dim=1).to(self.past.dtype)
        self.past[self.slots, :, self.place] = new
        held = self.past[:, :, : self.used].index_select(0, self.slots)
        return attention(queries, held[:, 0], held[:, 1], self.mask)


class MiniModel(nn.Module):
    """All modules of mini, and the stages."""

    def __init__(self, config: MiniConfig) -> None:
        super().__init__()
        self.config = config
        self.lm = Lm(config.lm, config.codec)
        self.codec_net = Codec(config.codec)

    @torch.inference_mode()
    def prefill(self, io: Inputs, state: State) -> Outputs:
        slots, pages = io["slots"], io[f"pages_{POOL}"]
        told, frames = self._told(io["rows"][..., 0], io["lengths"], pages.shape[1] * PAGE_FRAMES)
        spare = state["lm.told"].shape[0] - 1
        place = torch.arange(told.shape[1], device=slots.device)
        inside = place < frames[:, None]
        page = pages[:, place // PAGE_FRAMES]
        state["lm.told"][torch.where(inside, page, spare), place % PAGE_FRAMES] = told.to(
            state["lm.told"].dtype
        )
        nothing = torch.full_like(state["lm.codes"][slots], self.config.none)
        started = {
            "pages": functional.pad(pages, (0, self.config.pages() - pages.shape[1]), value=spare),
            "frames": frames,
            "codes": nothing,
            "sampling": io["sampling"],
            "seed": io["seeds"],
        }
        for name, value in started.items():
            put_rows(state[f"lm.{name}"], slots, value)
        return {"codes": self._step(slots, torch.zeros_like(slots), state)}

    @torch.inference_mode()
    def decode(self, io: Inputs, state: State) -> Outputs:
        return {"codes": self._step(io["slots"], io["steps"], state)}

    @torch.inference_mode()
    def codec(self, io: Inputs, state: State) -> Outputs:
        rows = Rows(state, "codec.", io["slots"], io["fresh"])
        return {"audio": self.codec_net(io["codes"], io["lengths"], rows)}

    def encode(self, io: Inputs, state: State) -> Outputs:
        raise NotImplementedError("mini takes no reference clips")

    def _told(self, ids: Tensor, lengths: Tensor, room: int) -> tuple[Tensor, Tensor]:
        """What each row's decoder will be told: [B, F, width], F at most `room`, and frames [B].

        ids [B, T]: blocks of BLOCK phonemes each, or one block of at most BLOCK.
        """
        batch, places = ids.shape
        inside = (torch.arange(places, device=ids.device) < lengths[:, None]) & (ids >= 0)
        width = min(places, BLOCK)
        ids, blocks = ids.clamp(min=0).view(-1, width), inside.view(-1, width)
        read = self._read_spoken if ids.device.type == "cpu" else self.lm.read
        text, units = read(ids, blocks)
        text, units = text.view(batch, places, -1), units.view(batch, places)
        frames = room
        if ids.device.type == "cpu":
            # A captured graph needs room for the longest; a CPU may look at what there is.
            frames = min(room, int(units.sum(1).max() + 1) // 2)
        told, total = self.lm.lay_out(text, units, max(1, frames))
        return told, total.clamp(max=room - self.config.lag)

    def _read_spoken(self, ids: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """`Lm.read` of the blocks that hold more than silence, and of the places in use alone: a
        bucket's padding, and the warm-up, cost a CPU nothing."""
        text = torch.zeros(*ids.shape, self.config.lm.text_width, dtype=self.lm.place.weight.dtype)
        units = torch.zeros_like(ids)
        spoken = ((ids > EDGE) & blocks).any(dim=1)
        if spoken.any():
            used = int(blocks[spoken].sum(dim=1).max())
            read = self.lm.read(ids[spoken, :used], blocks[spoken, :used])
            text[spoken, :used], units[spoken, :used] = read
        return text, units

    def _step(self, slots: Tensor, steps: Tensor, state: State) -> Tensor:
        """Run one step of each row and sample its codes [B, K]."""
        config = self.config
        frames = state["lm.frames"][slots]
        page = state["lm.pages"][slots].gather(1, (steps // PAGE_FRAMES)[:, None])[:, 0]
        told = state["lm.told"][page, steps % PAGE_FRAMES]
        told = told.masked_fill((steps >= frames)[:, None], 0)
        used = WINDOW
        if slots.device.type == "cpu":
            used = min(WINDOW, int(steps.max()) + 1)
        past = [state[f"lm.past.{layer}"] for layer in range(config.lm.layers)]
        attends = [Ring(layer, slots, steps, used) for layer in past]
        logits = self.lm(state["lm.codes"][slots], told, steps, attends).float()
        codes = self._sample(logits, slots, steps, state)
        frame = steps[:, None] - torch.arange(config.codec.codebooks, device=slots.device)
        outside = (frame < 0) | (frame >= frames[:, None])
        codes = codes.masked_fill(outside, config.none)
        put_rows(state["lm.codes"], slots, codes)
        return codes

    def _sample(self, logits: Tensor, slots: Tensor, steps: Tensor, state: State) -> Tensor:
        """logits [B, K, V] to codes [B, K]."""
        books, size = logits.shape[1:]
        values = state["lm.sampling"][slots]
        noise = gumbel(state["lm.seed"][slots], steps, range(books), size)
        sampling = Sampling.of(*values.repeat_interleave(books, dim=0)[:, :3].unbind(1))
        rows, noise = logits.flatten(0, 1), noise.flatten(0, 1)
        if slots.device.type == "cpu" and not _limited(values):
            # The defaults; `choose` would sort all codes to find that none is cut.
            lucky = torch.addcmul(rows / sampling.divisor, noise, sampling.luck)
            return lucky.argmax(dim=1).view(-1, books)
        return choose(rows, sampling, noise).view(-1, books)


def _limited(sampling: Tensor) -> bool:
    """Whether top-k or top-p cuts anything in any row of sampling [B, S]."""
    return bool(((sampling[:, 1] >= 1) | (sampling[:, 2] < 1)).any())
