"""A WebSocket session in the shape of ElevenLabs' API: what each client message does."""

import logging
import secrets
import time
from dataclasses import dataclass, field, replace

from voxserve.api import ws_limits as limits
from voxserve.api.body import parse_object
from voxserve.api.elevenlabs_events import AudioMessages, context_of
from voxserve.api.elevenlabs_fields import Message, read
from voxserve.api.logs import log_fields
from voxserve.api.service import Service
from voxserve.api.units import TextLimits
from voxserve.api.ws_contexts import MAX_CONTEXTS, Context, Contexts
from voxserve.api.ws_events import Place
from voxserve.api.ws_outbox import Outbox
from voxserve.api.ws_text import UtteranceText
from voxserve.api.ws_utterance import Settings, Utterance
from voxserve.errors import InvalidRequestError, UnavailableError, VoxserveError

ONLY_CONTEXT = "default"
MAX_NAMED = 64
"""Contexts that were named and not closed, whether anything is spoken in them or not."""

_log = logging.getLogger("voxserve.access")


@dataclass(slots=True)
class _Turn:
    """A context from its first message to `isFinal`. spaced: its text so far ends with a space."""

    settings: Settings
    closing: bool = False
    spaced: bool = True
    pieces: list[str] = field(default_factory=list)


class ElevenSession:
    """multi: the client names contexts; otherwise there is one, and empty text ends it.

    auto_mode: each message is whole phrases, so that a space belongs between two of them.
    """

    def __init__(
        self,
        service: Service,
        outbox: Outbox,
        settings: Settings,
        request_id: str,
        *,
        multi: bool,
        auto_mode: bool,
    ) -> None:
        self.contexts = Contexts()
        self.contexts.limit = MAX_CONTEXTS
        self.session_id = f"session-{secrets.token_hex(8)}"
        self.utterances = 0
        self.last_active = time.monotonic()
        self._service = service
        self._outbox = outbox
        self._settings = settings
        self._request_id = request_id
        self._multi = multi
        self._auto_mode = auto_mode
        self._turns: dict[str, _Turn] = {}
        self._errors = 0
        self._ended_by: int | None = None

    def drain(self) -> None:
        self._end_when_over(limits.GOING_AWAY)

    def end(self) -> None:
        for utterance in self.contexts.utterances():
            utterance.cancel("timeout")
        self._outbox.close(limits.GOING_AWAY, "the server is shutting down")

    def take(self, data: str) -> None:
        """One message. What is wrong with it is told to the client."""
        self.last_active = time.monotonic()
        context = None
        try:
            message: Message = read(Message, parse_object(data))
            context = message.context
            self._handle(message)
        except VoxserveError as error:
            self._errors += 1
            fatal = limits.POLICY if self._errors >= limits.MAX_ERRORS else None
            self.tell_error(error, context, fatal or self._fatal(error))

    def tell_error(self, error: VoxserveError, context: str | None, fatal: int | None) -> None:
        named = context_of(context if self._multi else None)
        content = {"error": error.message, "message": error.message, "code": error.code}
        self._outbox.event({**content, "request_id": self._request_id, **named})
        if fatal is not None:
            self._outbox.close(fatal, error.code)

    def flush_due(self, now: float) -> None:
        """Speak what has waited long enough for more text."""
        for utterance in self.contexts.due(now):
            if not utterance.release():
                self._flush(utterance.place.context)

    def _handle(self, message: Message) -> None:
        if message.close_socket:
            self._close_all()
            return
        name = (message.context or ONLY_CONTEXT) if self._multi else ONLY_CONTEXT
        if message.close_context:
            self._close(name)
            return
        text = message.text or ""
        if not self._multi and message.text == "":
            self._close(name)
            self._end_when_over(limits.NORMAL)
            return
        if not text and not message.flush:
            return  # A keep-alive.
        turn = self._turn(name, message)
        if text.strip():
            self._append(name, turn, text)
        elif text:
            turn.spaced = True
        if message.flush:
            self._flush(name)

    def _turn(self, name: str, message: Message) -> _Turn:
        turn = self._turns.get(name)
        if turn is not None and turn.closing:
            raise InvalidRequestError(
                f"context {name[:64]!r} was closed", param="context_id", code="context_closed"
            )
        if turn is None:
            if self._ended_by is not None:
                raise self._ending()
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

    def _append(self, name: str, turn: _Turn, text: str) -> None:
        if self.contexts.chars + len(text) > limits.MAX_BUFFERED_CHARS:
            raise InvalidRequestError(
                f"more than {limits.MAX_BUFFERED_CHARS} characters are buffered",
                code="too_much_text",
            )
        context = self.contexts.get(name)
        if context is None or context.open is None:
            waiting = len(self.contexts.utterances())
            if waiting >= limits.MAX_UTTERANCES:
                raise InvalidRequestError(
                    f"{waiting} utterances wait, at most {limits.MAX_UTTERANCES}",
                    code="too_many_utterances",
                )
            turn.spaced, turn.pieces = True, []
        utterance = self.contexts.opened(name, lambda context: self._utterance(turn, context))
        if self._auto_mode and not turn.spaced:
            text = f" {text}"
        utterance.append(text)
        turn.spaced = text[-1].isspace()
        turn.pieces.append(text)

    def _flush(self, name: str) -> None:
        utterance = self.contexts.shut(name)
        if utterance is not None:
            try:
                utterance.end()
            except VoxserveError:
                utterance.cancel("client_cancel")
                raise

    def _close(self, name: str) -> None:
        """The rest is spoken, then the context is final; closed again, it is final at once: that is
        how clients are interrupted once they have said all."""
        turn = self._turns.get(name)
        context = self.contexts.get(name)
        if turn is not None and turn.closing and context is not None:
            for utterance in tuple(context.live):
                utterance.cancel("client_cancel")
            return
        if turn is not None:
            turn.closing = True
            self._flush(name)
        if self.contexts.get(name) is None:
            self._final(name)

    def _close_all(self) -> None:
        for name, turn in tuple(self._turns.items()):
            if not turn.closing:
                self._close(name)
        self._end_when_over(limits.NORMAL)

    def _final(self, name: str) -> None:
        self._turns.pop(name, None)
        named = context_of(name if self._multi else None)
        self._outbox.event({"audio": None, "isFinal": True, **named})

    def _utterance(self, turn: _Turn, context: Context) -> Utterance:
        settings, host = turn.settings, self._service.host()
        plan = settings.plan.with_new_seed(settings.fields.seed)
        text_limits = TextLimits.of(self._service.config)
        text = UtteranceText(host, plan, text_limits, settings.fields.split_granularity)
        index = self.utterances
        self.utterances += 1
        pieces = turn.pieces
        name = context.name if self._multi else None
        return Utterance(
            self._service,
            settings,
            plan,
            text,
            AudioMessages(self._outbox, name, plan.output.pcm_hz, lambda: "".join(pieces)),
            Place(context.name, context.number, index, f"{self._request_id}.{index}"),
            context.live[-1] if context.live else None,
            self._utterance_over,
        )

    def _utterance_over(self, utterance: Utterance, error: VoxserveError | None) -> None:
        self.last_active = time.monotonic()
        name = utterance.place.context
        self.contexts.forget(utterance)
        log_fields(_log, "utterance", utterance.log_fields())
        if error is not None:
            self.tell_error(error, name, self._fatal(error))
        turn = self._turns.get(name)
        if turn is not None and turn.closing and self.contexts.get(name) is None:
            self._final(name)
        if self._ended_by is not None:
            self._end_when_over(self._ended_by)

    def _fatal(self, error: VoxserveError) -> int | None:
        return None if self.contexts.utterances() else limits.FATAL_CODES.get(error.code)

    def _end_when_over(self, code: int) -> None:
        self._ended_by = code
        if not self.contexts.utterances():
            self._outbox.close(code)

    def _ending(self) -> VoxserveError:
        if self._ended_by == limits.GOING_AWAY:
            return UnavailableError("the server is shutting down", code="draining")
        return InvalidRequestError("the session is closing", code="session_closing")
