"""A stack of decoder layers on fused kernels: what `transformer.Stack` does in plain torch, for a
GPU. Every call has a fixed shape and can be captured.

Weights that are used together lie together; the modules' own parameters become views of them, so
nothing is stored twice and the plain path stays in working order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from voxserve.kernels.decode_attention import decode_attention
from voxserve.kernels.heads import Heads
from voxserve.kernels.linear import gate_up, linear, residual
from voxserve.kernels.prompt_attention import prompt_attention
from voxserve.kernels.stream import Stream, add, padded, swiglu
from voxserve.nn.transformer import DecoderLayer, LayerShape, Stack

MOST_TILES = 4096
"""Tiles of one decode step's launch, and rows times key heads, that wait for their parts."""
LEAST_TILE = 64 * 32
"""Values of the smallest tile of 64 rows and more."""

Attend = Callable[[Tensor, Stream, int, Heads], Tensor]
"""(fused product [R, *], the stream it is of, layer, heads) -> [R, Hq D]."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. qkv [(Hq + 2 Hkv) D, H] and its bias, gate_up [2 I, H]; gains of the
    norms [H]."""

    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    gate_up: Tensor
    down: Tensor
    first_gain: Tensor
    second_gain: Tensor
    heads: Heads


class FusedStack:
    """The layers of a `Stack`. positions: most of a request."""

    def __init__(self, stack: Stack, shape: LayerShape, positions: int) -> None:
        self.eps = shape.eps
        place = torch.arange(positions, device=stack.norm.weight.device)
        cosines, sines = (
            part[0, :, 0, : shape.head // 2].contiguous()
            for part in stack.rope(place[None], torch.float32)
        )
        self.layers = []
        for layer in stack.layers:
            assert isinstance(layer, DecoderLayer)
            attention, mlp, weight = layer.self_attn, layer.mlp, layer.get_parameter
            heads = Heads(
                shape.heads,
                shape.kv_heads,
                weight("self_attn.q_norm.weight") if shape.qk_norm else None,
                weight("self_attn.k_norm.weight") if shape.qk_norm else None,
                cosines,
                sines,
                shape.eps,
                shape.hidden,
                scaled=shape.qkv_bias,
            )
            maps = (attention.q_proj, attention.k_proj, attention.v_proj)
            bias = torch.cat([part.bias for part in maps]).detach() if shape.qkv_bias else None
            self.layers.append(
                Layer(
                    together(*maps),
                    bias,
                    attention.o_proj.weight,
                    together(mlp.gate_proj, mlp.up_proj),
                    mlp.down_proj.weight,
                    weight("input_layernorm.weight"),
                    weight("post_attention_layernorm.weight"),
                    heads,
                )
            )
        self.last_gain = stack.norm.weight

    @property
    def first_gain(self) -> Tensor:
        return self.layers[0].first_gain

    def run(self, stream: Stream, attend: Attend, arrived: Tensor, *, library: bool) -> Stream:
        """All layers; the stream that comes out carries the gain of the final norm.

        library: multiply with torch's library, as suits many rows, not with the fused kernels;
        these make queries, keys and values with a bias all the same.
        arrived: zeros as `arrivals` makes them; zeros again afterwards.
        """
        gains = [*(layer.first_gain for layer in self.layers[1:]), self.last_gain]
        for number, (layer, gain) in enumerate(zip(self.layers, gains, strict=True)):
            mixed = attend(self._product(stream, layer, library), stream, number, layer.heads)
            if library:
                stream = add(mixed @ layer.out.t(), stream, layer.second_gain)
                inner = swiglu(stream.x @ layer.gate_up.t(), stream, self.eps)
                stream = add(inner @ layer.down.t(), stream, gain)
            else:
                stream = residual(mixed, layer.out, stream, layer.second_gain, arrived)
                inner = gate_up(stream, layer.gate_up, self.eps)
                stream = residual(inner, layer.down, stream, gain, arrived)
        return stream

    def _product(self, stream: Stream, layer: Layer, library: bool) -> Tensor:
        """Queries, keys and values, still without the stream's factor unless there is a bias."""
        if layer.qkv_bias is not None:
            bias, squares = layer.qkv_bias, stream.squares
            return linear(stream.x, layer.qkv, bias=bias, squares=squares, eps=self.eps)
        return stream.x @ layer.qkv.t() if library else linear(stream.x, layer.qkv)


def decode_attend(
    state: Mapping[str, Tensor], slots: Tensor, steps: Tensor, arrived: Tensor, room: Tensor
) -> Attend:
    """How the layers of a decode step attend over the pages of `state`, which are as
    `voxserve.nn.paging.PagedSlots` has them under "lm.". slots, steps [B] int64; arrived: as
    `arrivals` makes them; room [R, Hq D] takes what comes out."""

    def attend(qkv: Tensor, stream: Stream, layer: int, heads: Heads) -> Tensor:
        prompts, tables, cache = state["lm.prompt"], state["lm.pages"], state[f"lm.kv.{layer}"]
        return decode_attention(
            qkv, stream.squares, slots, steps, prompts, tables, cache, heads, arrived, room
        )

    return attend


def prompt_attend(
    state: Mapping[str, Tensor], slots: Tensor, lengths: Tensor, steps: int
) -> Attend:
    """The same of a prefill: prompts of `lengths` [B] int64, filled up to `steps` positions."""

    def attend(qkv: Tensor, stream: Stream, layer: int, heads: Heads) -> Tensor:
        tables, cache = state["lm.pages"], state[f"lm.kv.{layer}"]
        return prompt_attention(qkv, stream.squares, slots, lengths, tables, cache, heads, steps)

    return attend


def last_of(stream: Stream, lengths: Tensor, steps: int) -> Stream:
    """The last position of each prompt in a prefill's stream, filled up to a height that the
    kernels take with the first one."""
    rows = len(lengths)
    last = torch.arange(rows, device=lengths.device) * steps + lengths - 1
    more = padded(rows) - rows
    last = torch.cat((last, last[:1].expand(more))) if more else last
    return Stream(*(part[last] for part in (stream.x, stream.residual, stream.squares)))


def arrivals(like: Tensor, values: int = 0) -> Tensor:
    """What `FusedStack.run` and `decode_attention` count in. values: of a stream that is longer
    than a decode step's and is not left to the library."""
    count = max(MOST_TILES, values // LEAST_TILE)
    return torch.zeros(count, dtype=torch.int32, device=like.device)


def together(*maps: nn.Linear) -> Tensor:
    """The weights of several maps of one input, one below the other; the maps get views of it."""
    whole = torch.cat([part.weight for part in maps]).detach()
    start = 0
    for part in maps:
        end = start + part.out_features
        part.weight = nn.Parameter(whole[start:end], requires_grad=False)
        start = end
    return whole
