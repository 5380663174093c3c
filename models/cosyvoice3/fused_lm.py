"""The language model's steps on fused kernels: what `stages` does in plain torch, for a GPU.

Every call has a fixed shape and can be captured. The decoder layers are `nn.fused_stack`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from voxserve.kernels import tiles
from voxserve.kernels.choose_again import Lately, choose_again
from voxserve.kernels.linear import linear
from voxserve.kernels.stream import Stream, embed_frames, enter, padded
from voxserve.models.cosyvoice3.config import LmConfig, Repetition
from voxserve.models.cosyvoice3.limits import MAX_CONTEXT
from voxserve.models.cosyvoice3.lm import LanguageModel, layer_shape
from voxserve.nn.fused_stack import FusedStack, arrivals, decode_attend, last_of, prompt_attend

HEAD_STEP = 128
"""The head's rows are filled up to a multiple of this, which tiles divide."""

State = Mapping[str, Tensor]


class FusedLm:
    """`LanguageModel` over the rows of state that `limits.state` declares.

    Takes over the model: its head becomes a view of the filled-up one.
    """

    @torch.inference_mode()
    def __init__(self, lm: LanguageModel, config: LmConfig, repetition: Repetition) -> None:
        self.lm = lm
        self.config = config
        self.limit = repetition.limit
        self.body = FusedStack(lm.model, layer_shape(config), MAX_CONTEXT)
        published = lm.llm_decoder.weight
        count, hidden = published.shape
        self.head = published.new_zeros(-(-count // HEAD_STEP) * HEAD_STEP, hidden)
        self.head[:count] = published
        lm.llm_decoder.weight = nn.Parameter(self.head[:count], requires_grad=False)
        self.no_words = torch.full((1,), -1, device=published.device)
        self.starts = torch.zeros_like(self.no_words)

    def decode(self, slots: Tensor, steps: Tensor, state: State) -> Tensor:
        """Codes [B] int64 of a step. slots, steps [B] int64."""
        arrived, table = arrivals(slots), self.lm.speech_embedding.weight
        words, gain = self.no_words.expand(len(slots)).contiguous(), self.body.first_gain
        last = state["lm.code"][:, None]
        stream = embed_frames(last, slots, words, table, self.starts, table, gain)
        width = self.config.heads * self.config.head
        room = stream.x.new_zeros(padded(len(slots)), width)
        attend = decode_attend(state, slots, steps, arrived, room)
        stream = self.body.run(stream, attend, arrived, library=False)
        return self._say(stream, slots, steps, state)

    def prefill(self, x: Tensor, slots: Tensor, lengths: Tensor, state: State) -> Tensor:
        """Codes [B] int64 behind prompts. x [B, T, H]: embedded, T a multiple of 16; lengths [B]
        int64. The rows' pages and all that `_say` reads stand in the state already."""
        steps = x.shape[1]
        flat = x.flatten(0, 1)
        stream = enter(flat, self.body.first_gain, len(flat), None, self.body.eps)
        attend = prompt_attend(state, slots, lengths, steps)
        arrived = arrivals(slots, x.numel())
        stream = self.body.run(stream, attend, arrived, library=not tiles.fixed())
        stream = last_of(stream, lengths, steps)
        return self._say(stream, slots, torch.zeros_like(lengths), state)

    def logits(self, stream: Stream) -> Tensor:
        """[R, V] float32 of a stream behind the layers, V as the head is filled up."""
        squares, eps = stream.squares, self.body.eps
        return linear(stream.x, self.head, squares=squares, eps=eps, dtype=torch.float32)

    def _say(self, stream: Stream, slots: Tensor, steps: Tensor, state: State) -> Tensor:
        """Sample the codes of a step as `lm.Sampler` does, and remember them."""
        config = self.config
        lately = Lately(
            state["lm.sampling"],
            state["lm.seed"],
            state["lm.ignore_eos"],
            state["lm.said"],
            state["lm.recent"],
            state["lm.code"],
            self.limit,
            config.codes,
            config.end,
        )
        return choose_again(self.logits(stream), slots, steps, lately)
