"""The language model's steps on fused kernels: what `stages` does in plain torch, for a GPU.

A step reads 7.3 GB of weights, so at any number of rows that fit it takes as long as reading them;
what stands between the maps is fused into them, and all codebooks are sampled by one kernel.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from voxserve.kernels import tiles
from voxserve.kernels.choose import Draw, choose
from voxserve.kernels.linear import linear
from voxserve.kernels.stream import Stream, embed_frames, enter, padded
from voxserve.models.higgs_audio_v3.limits import MAX_CONTEXT, SAMPLING
from voxserve.models.higgs_audio_v3.lm import HiggsLm
from voxserve.nn.fused_stack import FusedStack, arrivals, decode_attend, last_of, prompt_attend

State = Mapping[str, Tensor]


class FusedHiggs:
    """`HiggsLm` over the rows of state that `limits.state` declares.

    library: multiply with torch's library instead of the fused kernels in decode steps too.
    """

    @torch.inference_mode()
    def __init__(self, lm: HiggsLm, *, library: bool = False) -> None:
        self.lm = lm
        self.library = library
        self.body = FusedStack(lm.body, lm.shape, MAX_CONTEXT)

    def decode(self, slots: Tensor, steps: Tensor, inject: Tensor, state: State) -> Tensor:
        """Logits [B, K, codes] float32 of a step. slots, steps [B] int64; inject [B, 1] int64: no
        word."""
        arrived, lm = arrivals(slots), self.lm
        stream = embed_frames(
            state["lm.codes"],
            slots,
            inject,
            lm.codes.weight,
            lm.starts,
            lm.text.weight,
            self.body.first_gain,
        )
        room = stream.x.new_zeros(padded(len(slots)), lm.shape.heads * lm.shape.head)
        attend = decode_attend(state, slots, steps, arrived, room)
        stream = self.body.run(stream, attend, arrived, library=self.library)
        return self._logits(stream, len(slots))

    def prefill(self, x: Tensor, slots: Tensor, lengths: Tensor, state: State) -> Tensor:
        """Logits [B, K, codes] float32 behind prompts. x [B, T, H]: embedded, T a power of two from
        16 on; lengths [B] int64. The rows' pages stand in the state already."""
        rows, steps = x.shape[:2]
        flat = x.flatten(0, 1)
        stream = enter(flat, self.body.first_gain, len(flat), None, self.body.eps)
        attend = prompt_attend(state, slots, lengths, steps)
        stream = self.body.run(stream, attend, arrivals(slots), library=not tiles.fixed())
        return self._logits(last_of(stream, lengths, steps), rows)

    def _logits(self, stream: Stream, rows: int) -> Tensor:
        table, eps = self.lm.codes.weight, self.body.eps
        logits = linear(stream.x, table, squares=stream.squares, eps=eps, dtype=torch.float32)
        return logits[:rows].view(rows, self.lm.config.codebooks, self.lm.config.codes)

    def choose(self, logits: Tensor, slots: Tensor, steps: Tensor, state: State) -> Tensor:
        """A code [B, K] int64 of every codebook, as `voxserve.nn.sampling` chooses. logits: of
        `decode` or `prefill`, -inf where forbidden."""
        books = logits.shape[1]
        codes = slots.new_empty(len(slots), books)
        draw = Draw(slots, steps, state["lm.sampling"], state["lm.seed"], codes, state["lm.codes"])
        choose(logits.flatten(1), draw, 0, SAMPLING.index("temperature"), books=books)
        return codes
