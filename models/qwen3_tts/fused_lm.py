"""The language model's steps on fused kernels: what `stages` does in plain torch, for a GPU.

Every call has a fixed shape and can be captured. The decoder layers are `nn.fused_stack`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from voxserve.kernels import tiles
from voxserve.kernels.choose import Draw, Talk, choose
from voxserve.kernels.depth_attention import depth_attention
from voxserve.kernels.heads import Heads
from voxserve.kernels.linear import linear
from voxserve.kernels.stream import Stream, embed_frames, enter, new_stream, padded
from voxserve.models.qwen3_tts.config import Talker
from voxserve.models.qwen3_tts.limits import CONTROL_CODES, MAX_CONTEXT, SAMPLING
from voxserve.models.qwen3_tts.lm import TalkerModel, layer_shape
from voxserve.nn.fused_stack import FusedStack, arrivals, decode_attend, last_of, prompt_attend

TEXT_ROWS = 8192
"""Rows of the text table that are projected at a time."""

State = Mapping[str, Tensor]


class FusedTalker:
    """`TalkerModel` over the rows of state that `limits.state` declares.

    Takes over the talker: its text table becomes the projected one, and its projection nothing.
    """

    @torch.inference_mode()
    def __init__(self, talker: TalkerModel, config: Talker) -> None:
        project_text(talker)
        self.config = config
        self.talker = talker
        self.text = talker.model.text_embedding.weight
        depth, narrow = talker.code_predictor, config.depth
        body = layer_shape(config.body, qk_norm=True)
        self.body = FusedStack(talker.model, body, MAX_CONTEXT)
        shape = layer_shape(narrow, qk_norm=True)
        assert shape.hidden & (shape.hidden - 1) == 0, "`choose` wants a power of two"
        self.depth = FusedStack(depth.model, shape, config.codebooks)
        self.depth_heads = [head.get_parameter("weight") for head in depth.lm_head]
        projection = depth.small_to_mtp_projection
        self.projection = projection if isinstance(projection, nn.Linear) else None
        first, *others = [talker.model.codec_embedding, *depth.model.codec_embedding]
        # The last codebook's code is nobody's input within the frame.
        self.inputs = [projection(table.weight) for table in (first, *others[:-1])]

    @torch.inference_mode()
    def decode(self, slots: Tensor, steps: Tensor, inject: Tensor, state: State) -> Tensor:
        """One frame a row, codes [B, K] int64, as `Qwen3Model.decode`.

        slots, steps [B] int64; inject [B, 1] int64.
        """
        arrived = arrivals(slots)
        stream = embed_frames(
            state["lm.codes"],
            slots,
            inject,
            self.talker.frame_table,
            self.talker.frame_starts,
            self.text,
            self.body.first_gain,
        )
        sizes = self.config.body
        room = stream.x.new_zeros(padded(len(slots)), sizes.heads * sizes.head)
        attend = decode_attend(state, slots, steps, arrived, room)
        stream = self.body.run(stream, attend, arrived, library=False)
        return self._speak(stream, slots, steps, state, arrived)

    @torch.inference_mode()
    def prefill(self, x: Tensor, slots: Tensor, lengths: Tensor, state: State) -> Tensor:
        """The first frame of new rows, codes [B, K] int64, as `Qwen3Model.prefill`.

        x [B, T, H]: embedded prompts, T a power of two from 16 on; lengths [B] int64. The rows'
        pages, sampling, seeds and cleared said codes stand in the state already.
        """
        steps = x.shape[1]
        arrived = arrivals(slots, x.numel())
        flat = x.flatten(0, 1)
        stream = enter(flat, self.body.first_gain, len(flat), None, self.body.eps)
        attend = prompt_attend(state, slots, lengths, steps)
        stream = self.body.run(stream, attend, arrived, library=not tiles.fixed())
        stream = last_of(stream, lengths, steps)
        return self._speak(stream, slots, torch.zeros_like(lengths), state, arrived)

    def _speak(
        self, stream: Stream, slots: Tensor, steps: Tensor, state: State, arrived: Tensor
    ) -> Tensor:
        """Codes [B, K] of the stream behind the talker's layers."""
        config, rows = self.config, len(slots)
        codes = slots.new_empty(rows, config.codebooks)
        draw = Draw(slots, steps, state["lm.sampling"], state["lm.seed"], codes, state["lm.codes"])
        talk = Talk(
            state["lm.said"],
            state["lm.ignore_eos"],
            SAMPLING.index("repetition_penalty"),
            SAMPLING.index("min_steps"),
            config.control.eos,
            CONTROL_CODES,
        )
        eps, height = self.body.eps, stream.x.shape[0]
        column, rest = SAMPLING.index("temperature"), SAMPLING.index("subtalker_temperature")
        single = torch.float32
        head = self.talker.codec_head.weight
        logits = linear(stream.x, head, squares=stream.squares, eps=eps, dtype=single)
        gain = self.depth.first_gain
        both = self._both(stream, height, rows)
        second = both.rows(height, height)
        choose(logits, draw, 0, column, talk=talk, table=self.inputs[0], gain=gain, out=second)
        sizes = config.depth
        cache = stream.x.new_empty(
            sizes.layers, 2, height, sizes.kv_heads, _power(config.codebooks), sizes.head
        )
        for book, head in enumerate(self.depth_heads, start=1):

            def attend(
                qkv: Tensor, stream: Stream, layer: int, heads: Heads, position: int = book
            ) -> Tensor:
                return depth_attention(qkv, stream.squares, cache[layer], heads, position, rows)

            out = self.depth.run(both if book == 1 else second, attend, arrived, library=False)
            out = out.rows(len(out.x) - height, height)
            logits = linear(out.x, head, squares=out.squares, eps=self.depth.eps, dtype=single)
            if book < len(self.depth_heads):
                second = new_stream(rows, sizes.hidden, 1, stream.x)
                table = self.inputs[book]
                choose(logits, draw, book, rest, table=table, gain=gain, out=second)
            else:
                choose(logits, draw, book, rest)
        return codes

    def _both(self, stream: Stream, height: int, rows: int) -> Stream:
        """The depth stack's input for positions 0 and 1, the latter still empty."""
        width = self.config.depth.hidden
        make = stream.x.new_empty if height == rows else stream.x.new_zeros
        both = Stream(
            make(2 * height, width),
            make(2 * height, width, dtype=torch.float32),
            make(2 * height, 1, dtype=torch.float32),
        )
        gain, first = self.depth.first_gain, both.rows(0, height)
        if self.projection is None:
            enter(stream.x, gain, rows, stream.squares, self.body.eps, first)
            return both
        projected = linear(
            stream.x,
            self.projection.weight,
            bias=self.projection.bias,
            squares=stream.squares,
            eps=self.body.eps,
        )
        enter(projected, gain, rows, None, 0.0, first)
        return both


def project_text(talker: TalkerModel) -> None:
    """Replace the text table by its projection, row by row the same, and drop the original."""
    old = talker.model.text_embedding.weight
    new = old.new_empty(len(old), talker.config.body.hidden)
    for first in range(0, len(old), TEXT_ROWS):
        part = old[first : first + TEXT_ROWS]
        new[first : first + TEXT_ROWS] = talker.text_projection(part)
    talker.model.text_embedding.weight = nn.Parameter(new, requires_grad=False)
    talker.text_projection = nn.Identity()  # type: ignore[assignment]


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()
