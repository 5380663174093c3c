"""The rows of state that one launch works on."""

from collections.abc import Callable, Mapping

from torch import Tensor

Streaming = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(input, state, lengths) -> (output, new state), as the layers of `causal_conv` have it."""


class Rows:
    """Gathers the state of a launch's rows and puts the new state back in place.

    state: tensors [slots + 1, ...] by name. prefix: put before every name. slots: [B] int64.
    fresh: [B] bool, rows whose state counts as zero, whatever their slot held.
    """

    def __init__(
        self, state: Mapping[str, Tensor], prefix: str, slots: Tensor, fresh: Tensor
    ) -> None:
        self._state = state
        self._prefix = prefix
        self._slots = slots
        self._fresh = fresh

    def take(self, name: str) -> Tensor:
        """[B, ...], a copy."""
        held = self._state[self._prefix + name].index_select(0, self._slots)
        return held.masked_fill_(self._fresh.view(-1, *([1] * (held.dim() - 1))), 0)

    def put(self, name: str, value: Tensor) -> None:
        put_rows(self._state[self._prefix + name], self._slots, value)

    def run(self, name: str, layer: Streaming, x: Tensor, lengths: Tensor) -> Tensor:
        """One streaming layer, with the state of that name taken before and put behind."""
        out, after = layer(x, self.take(name), lengths)
        self.put(name, after)
        return out


def put_rows(held: Tensor, slots: Tensor, value: Tensor) -> None:
    """held[slots] = value, in place; of rows that share a slot (padding), any one stays."""
    held.index_copy_(0, slots, value.to(held.dtype))
