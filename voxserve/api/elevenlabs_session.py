"""A WebSocket session in the shape of ElevenLabs' API: what each client message does."""

import time
from dataclasses import dataclass, field, replace

from voxserve.api import ws_limits as limits
from voxserve.api.body import parse_object
from voxserve.api.elevenlabs_events import AudioMessages, context_of
from voxserve.api.elevenlabs_fields import Message, Query, read
from voxserve.api.speech_request import SpeechPlan
from voxserve.api.ws_contexts import MAX_CONTEXTS, Context
from voxserve.api.ws_events import Place
from voxserve.api.ws_life import Life
from voxserve.api.ws_receive import check_size, flush_or_idle
from voxserve.api.ws_utterance import Settings, Utterance
from voxserve.errors import InvalidRequestError, VoxserveError

ONLY_CONTEXT = "default"
MAX_NAMED = 64
"""Contexts that were named and not closed, whether anything is spoken in them or not."""


@dataclass(slots=True)
class _Turn:
    """A context from its first message to `isFinal`. spaced: its text so far ends with a space."""

    settings: Settings
    closing: bool = False
    spaced: bool = True
    pieces: list[str] = field(default_factory=list)


class ElevenSession:
    """multi: the client names contexts; otherwise there is one, and empty text ends it."""

    def __init__(self, life: Life, settings: Settings, query: Query, *, multi: bool) -> None:
        self.life = life
        life.contexts.limit = MAX_CONTEXTS
        self._settings = settings
        self._multi = multi
        # Each message is whole phrases, so that a space belongs between two of them.
        self._auto_mode = query.auto_mode
        self._idle_s = query.inactivity_timeout
        self._turns: dict[str, _Turn] = {}
        self._errors = 0

    async def take(self, text: str) -> None:
        """One message. What is wrong with it is told to the client."""
        try:
            check_size(text)
        except InvalidRequestError as error:
            self.complain(error, limits.TOO_BIG)
            return
        self.life.last_active = time.monotonic()
        context = None
        try:
            message: Message = read(Message, parse_object(text))
            context = message.context
            await self._handle(message)
        except VoxserveError as error:
            self._errors += 1
            fatal = limits.POLICY if self._errors >= limits.MAX_ERRORS else None
            self._tell_error(error, context, fatal or self.life.fatal(error))

    def complain(self, error: VoxserveError, fatal: int | None = None) -> None:
        self._tell_error(error, None, fatal)

    def deadline(self) -> float:
        return self.life.deadline(self._idle_s)

    async def on_deadline(self, now: float) -> None:
        await flush_or_idle(self, self._idle_s, now)

    def on_auto_flush(self, context: str) -> None:
        """Nothing that these clients know of."""

    def _tell_error(self, error: VoxserveError, context: str | None, fatal: int | None) -> None:
        named = context_of(context if self._multi else None)
        content = {"error": error.message, "message": error.message, "code": error.code}
        self.life.outbox.event({**content, "request_id": self.life.request_id, **named})
        if fatal is not None:
            self.life.outbox.close(fatal, error.code)

    async def _handle(self, message: Message) -> None:
        if message.close_socket:
            await self._close_all()
            return
        name = (message.context or ONLY_CONTEXT) if self._multi else ONLY_CONTEXT
        if message.close_context:
            await self._close(name)
            return
        text = message.text or ""
        if not self._multi and message.text == "":
            await self._close(name)
            self.life.end_when_over(limits.NORMAL)
            return
        if not text and not message.flush:
            return  # A keep-alive.
        turn = self._turn(name, message)
        if text.strip():
            await self._append(name, turn, text)
        elif text:
            turn.spaced = True
        if message.flush:
            await self.life.flush(name)

    def _turn(self, name: str, message: Message) -> _Turn:
        turn = self._turns.get(name)
        if turn is not None and turn.closing:
            raise InvalidRequestError(
                f"context {name[:64]!r} was closed", param="context_id", code="context_closed"
            )
        if turn is None:
            self.life.refuse_when_ending()
            if len(self._turns) >= MAX_NAMED:
                raise InvalidRequestError(
                    f"{MAX_NAMED} contexts are open", param="context_id", code="too_many_contexts"
                )
            turn = self._turns[name] = _Turn(self._with_speed(message))
        return turn

    def _with_speed(self, message: Message) -> Settings:
        given, plan = message.voice_settings, self._settings.plan
        if given is None or given.speed is None:
            return self._settings
        return replace(
            self._settings, plan=replace(plan, output=replace(plan.output, speed=given.speed))
        )

    async def _append(self, name: str, turn: _Turn, text: str) -> None:
        self.life.check_text(text)
        utterance = self.life.opened(name, lambda context: self._utterance(turn, context))
        if self._auto_mode and not turn.spaced:
            text = f" {text}"
        turn.spaced, spaced = text[-1].isspace(), turn.spaced
        # Before it is taken: of a long text the first may be spoken before the last is.
        turn.pieces.append(text)
        try:
            await utterance.append(text)
        except VoxserveError:
            turn.pieces.pop()
            turn.spaced = spaced
            raise

    async def _close(self, name: str) -> None:
        """The rest is spoken, then the context is final; closed again, it is final at once: that is
        how clients are interrupted once they have said all."""
        turn = self._turns.get(name)
        context = self.life.contexts.get(name)
        if turn is not None and turn.closing and context is not None:
            for utterance in tuple(context.live):
                utterance.cancel("client_cancel")
            return
        if turn is not None:
            turn.closing = True
            await self.life.flush(name)
            if self._turns.get(name) is not turn:
                return  # It was over meanwhile.
        if self.life.contexts.get(name) is None:
            self._final(name)

    async def _close_all(self) -> None:
        for name, turn in tuple(self._turns.items()):
            if not turn.closing:
                await self._close(name)
        self.life.end_when_over(limits.NORMAL)

    def _final(self, name: str) -> None:
        self._turns.pop(name, None)
        named = context_of(name if self._multi else None)
        self.life.outbox.event({"audio": None, "isFinal": True, **named})

    def _utterance(self, turn: _Turn, context: Context) -> Utterance:
        pieces = turn.pieces = []
        turn.spaced = True
        name = context.name if self._multi else None

        def events(place: Place, plan: SpeechPlan) -> AudioMessages:
            hz = plan.output.pcm_hz
            return AudioMessages(self.life.outbox, name, hz, lambda: "".join(pieces))

        return self.life.utterance(turn.settings, context, events, self._utterance_over)

    def _utterance_over(self, utterance: Utterance, error: VoxserveError | None) -> None:
        name = utterance.place.context

        def tell() -> None:
            if error is not None:
                self._tell_error(error, name, self.life.fatal(error))
            turn = self._turns.get(name)
            if turn is not None and turn.closing and self.life.contexts.get(name) is None:
                self._final(name)

        self.life.over(utterance, tell, {})
