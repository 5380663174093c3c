"""The contexts of a WebSocket session: which utterance is open where, and in which order."""

from collections.abc import Callable
from dataclasses import dataclass, field

from voxserve.api.ws_utterance import Utterance
from voxserve.errors import InvalidRequestError

MAX_CONTEXTS = 8
_NUMBERS = 2**16


@dataclass(slots=True)
class Context:
    """open: the utterance that takes text. live: those not over yet, in order; `open` is last."""

    name: str
    number: int
    open: Utterance | None = None
    live: list[Utterance] = field(default_factory=list)


class Contexts:
    """A context exists while an utterance of it does. limit: how many at once."""

    def __init__(self) -> None:
        self.limit = 1
        self._by_name: dict[str, Context] = {}
        self._opened = 0

    def get(self, name: str) -> Context | None:
        return self._by_name.get(name)

    def all(self) -> list[Context]:
        return list(self._by_name.values())

    def utterances(self) -> list[Utterance]:
        return [utterance for context in self._by_name.values() for utterance in context.live]

    @property
    def chars(self) -> int:
        """Text held for utterances that are not over."""
        return sum(utterance.text.chars for utterance in self.utterances())

    def next_flush(self) -> float | None:
        """When `due` has something to tell."""
        opened = [context.open for context in self.all() if context.open is not None]
        times = [at for utterance in opened if (at := utterance.flush_at()) is not None]
        return min(times, default=None)

    def due(self, now: float) -> list[Utterance]:
        """The open utterances that have waited long enough for a flush."""
        opened = [context.open for context in self.all() if context.open is not None]
        return [each for each in opened if (at := each.flush_at()) is not None and at <= now]

    def opened(self, name: str, create: Callable[[Context], Utterance]) -> Utterance:
        """The open utterance of a context, made with `create` if there is none.

        Raises InvalidRequestError (`too_many_contexts`) beyond the limit.
        """
        context = self._by_name.get(name)
        if context is None:
            if len(self._by_name) >= self.limit:
                raise InvalidRequestError(
                    f"{len(self._by_name)} contexts are open, at most {self.limit} with this "
                    "audio_transport",
                    param="context_id",
                    code="too_many_contexts",
                )
            context = Context(name, self._opened % _NUMBERS)
        if context.open is None:
            context.open = create(context)
            context.live.append(context.open)
            if name not in self._by_name:
                self._by_name[name] = context
                self._opened += 1
        return context.open

    def shut(self, name: str) -> Utterance | None:
        """Take no more text into the open utterance of a context. Returns it."""
        context = self._by_name.get(name)
        if context is None:
            return None
        utterance, context.open = context.open, None
        return utterance

    def forget(self, utterance: Utterance) -> None:
        """The utterance is over; so is its context if it was the last one there."""
        context = self._by_name[utterance.place.context]
        context.live.remove(utterance)
        if context.open is utterance:
            context.open = None
        if not context.live:
            del self._by_name[context.name]
