"""A WebSocket session: what each client message does. It never waits for the sending side."""

import logging
import secrets
import time
from typing import Any

from voxserve.api import ws_limits as limits
from voxserve.api.cloning import with_clip
from voxserve.api.errors import error_body
from voxserve.api.logs import log_fields
from voxserve.api.schemas import SessionFields, parse
from voxserve.api.service import Service
from voxserve.api.speech_request import resolve
from voxserve.api.units import TextLimits
from voxserve.api.ws_contexts import MAX_CONTEXTS, Context, Contexts
from voxserve.api.ws_events import Place, UtteranceEvents
from voxserve.api.ws_messages import (
    CancelInput,
    ClientMessage,
    Close,
    Configure,
    Flush,
    Ping,
    Report,
    Text,
)
from voxserve.api.ws_outbox import Outbox
from voxserve.api.ws_text import UtteranceText
from voxserve.api.ws_utterance import Settings, Utterance
from voxserve.errors import InvalidRequestError, UnavailableError, VoxserveError

DEFAULT_FORMAT = "pcm"

_log = logging.getLogger("voxserve.access")


class SpeechSession:
    """settings: None until session.config. ttfa_s: the target for each utterance's first audio.

    request_id: of the handshake; utterances are named after it. ended_by: the close code once the
    session is to end when everything that runs has been sent.
    """

    def __init__(self, service: Service, outbox: Outbox, request_id: str, ttfa_s: float) -> None:
        self.settings: Settings | None = None
        self.contexts = Contexts()
        self.session_id = f"session-{secrets.token_hex(8)}"
        self.utterances = 0
        self.last_active = time.monotonic()
        self._service = service
        self._outbox = outbox
        self._request_id = request_id
        self._ttfa_s = ttfa_s
        self._errors = 0
        self._ended_by: int | None = None

    def drain(self) -> None:
        """The server is going: take no new utterance, let the running ones end."""
        self._end_when_over(limits.GOING_AWAY)

    def end(self) -> None:
        """The server goes now."""
        for utterance in self.contexts.utterances():
            utterance.cancel("timeout")
        self._outbox.close(limits.GOING_AWAY, "the server is shutting down")

    async def handle(self, message: ClientMessage) -> None:
        """Raises VoxserveError for what the client must be told. Only a session.config with a
        clip takes a while."""
        if not isinstance(message, Ping):
            self.last_active = time.monotonic()
        match message:
            case Ping():
                self._outbox.event({"type": "pong", "server_ms": round(time.time() * 1000)})
            case Configure(fields):
                await self._configure(fields)
            case Text(context, text):
                self._append(context, text)
            case Flush(context, _, done):
                self.flush(context)
                if done and self.settings is not None and self.settings.fields.compat == "sglang":
                    self._end_when_over(limits.NORMAL)
            case CancelInput(context, played_ms):
                self._cancel(context, played_ms)
            case Report(context, played_ms):
                self._report(context, played_ms / 1000)
            case Close():
                self._close()

    def flush(self, context: str) -> None:
        """End the open utterance of a context; without one, an empty one is over at once."""
        utterance = self._open(context)
        self.contexts.shut(context)
        try:
            utterance.end()
        except VoxserveError:
            utterance.cancel("client_cancel")
            raise

    def flush_due(self, now: float) -> None:
        """Flush what has waited long enough, with a warning."""
        for utterance in self.contexts.due(now):
            if not utterance.release():
                name = utterance.place.context
                self.warn("flush_auto", {"context_id": name})
                self.flush(name)

    def warn(self, code: str, content: dict[str, Any]) -> None:
        self._outbox.event({"type": "warning", "code": code, **content})

    def tell_error(
        self,
        error: VoxserveError,
        *,
        where: dict[str, Any] | None = None,
        event_id: str | None = None,
        fatal: int | None = None,
    ) -> None:
        """An `error` event; with `fatal` the session closes with that code behind it."""
        content = error_body(error, self._request_id)
        extra = {} if event_id is None else {"event_id": event_id}
        self._outbox.event(
            {"type": "error", **content, **(where or {}), **extra, "fatal": fatal is not None}
        )
        if fatal is not None:
            self._outbox.close(fatal, error.code)

    def count_error(self, error: VoxserveError, event_id: str | None) -> None:
        """A message was refused; the tenth ends the session."""
        self._errors += 1
        too_many = self._errors >= limits.MAX_ERRORS
        fatal = limits.POLICY if too_many else self._fatal(error)
        self.tell_error(error, event_id=event_id, fatal=fatal)

    def _fatal(self, error: VoxserveError) -> int | None:
        """The code to close with. While other utterances run, nothing is that bad."""
        return None if self.contexts.utterances() else limits.FATAL_CODES.get(error.code)

    async def _configure(self, fields: dict[str, Any]) -> None:
        host, config = self._service.host(), self._service.config
        if self.contexts.utterances():
            raise InvalidRequestError(
                "session.config is taken between utterances only", code="session_busy"
            )
        session, ignored = parse(SessionFields, fields, strict_fields=config.api.strict_fields)
        plan = resolve(
            session,
            host,
            config,
            format_=DEFAULT_FORMAT,
            silence=True,
            uploaded=self._service.uploaded(),
        )
        if session.audio_transport == "tagged" and plan.output.format.name != "pcm":
            raise InvalidRequestError(
                f"response_format is {plan.output.format.name}, tagged frames carry pcm only",
                param="response_format",
            )
        plan = await with_clip(plan, session, self._service, host)
        # What the model itself cannot honour is said now, not with the first text.
        UtteranceText(host, plan, TextLimits.of(config), session.split_granularity)
        self.settings = Settings(session, plan, self._ttfa_s)
        self.contexts.limit = 1 if session.audio_transport == "binary" else MAX_CONTEXTS
        self._outbox.event(
            {
                "type": "session.configured",
                "session_id": self.session_id,
                "sample_rate": plan.output.sample_rate_hz,
                "format": plan.output.format.name,
                "voice": plan.request.voice,
                "audio_transport": session.audio_transport,
                "text_streaming": host.info.text_streaming and not plan.normalise,
            }
        )
        if ignored:
            self.warn("ignored_fields", {"fields": [name[:64] for name in ignored[:20]]})

    def _append(self, context: str, text: str) -> None:
        self._configured()
        held = self.contexts.get(context)
        if not text or (not text.strip() and (held is None or held.open is None)):
            return  # A keep-alive of clients that must send something; nothing begins with it.
        if self.contexts.chars + len(text) > limits.MAX_BUFFERED_CHARS:
            self.tell_error(
                InvalidRequestError(
                    f"more than {limits.MAX_BUFFERED_CHARS} characters are buffered",
                    code="too_much_text",
                ),
                fatal=limits.TOO_BIG,
            )
            return
        self._open(context).append(text)

    def _open(self, name: str) -> Utterance:
        """The utterance of a context that takes text, a new one if need be."""
        settings = self._configured()
        held = self.contexts.get(name)
        if held is None or held.open is None:
            self._refuse_when_ending()
            waiting = len(self.contexts.utterances())
            if waiting >= limits.MAX_UTTERANCES:
                raise InvalidRequestError(
                    f"{waiting} utterances wait, at most {limits.MAX_UTTERANCES}",
                    code="too_many_utterances",
                )
        return self.contexts.opened(name, lambda context: self._utterance(settings, context))

    def _utterance(self, settings: Settings, context: Context) -> Utterance:
        """Raises VoxserveError; then nothing has begun."""
        host = self._service.host()
        plan = settings.plan.with_new_seed(settings.fields.seed)
        text_limits = TextLimits.of(self._service.config)
        text = UtteranceText(host, plan, text_limits, settings.fields.split_granularity)
        index = self.utterances
        self.utterances += 1
        place = Place(context.name, context.number, index, f"{self._request_id}.{index}")
        return Utterance(
            self._service,
            settings,
            plan,
            text,
            UtteranceEvents(self._outbox, place, plan, settings.fields.audio_transport),
            place,
            context.live[-1] if context.live else None,
            self._utterance_over,
        )

    def _utterance_over(self, utterance: Utterance, error: VoxserveError | None) -> None:
        self.last_active = time.monotonic()
        self.contexts.forget(utterance)
        log_fields(_log, "utterance", {**utterance.log_fields(), **self._client_labels()})
        if error is not None:
            where = {
                "context_id": utterance.place.context,
                "utterance_index": utterance.place.index,
                "partial_audio": utterance.events.sent_samples > 0,
            }
            self.tell_error(error, where=where, fatal=self._fatal(error))
        if self._ended_by is not None:
            self._end_when_over(self._ended_by)

    def _client_labels(self) -> dict[str, object]:
        """What the client wants to find in the log."""
        fields = self._configured().fields
        labels = {"user": fields.user, "metadata": fields.metadata}
        return {name: value for name, value in labels.items() if value is not None}

    def _cancel(self, name: str | None, played_ms: float | None) -> None:
        self._configured()
        if name is not None and played_ms is not None:
            self._report(name, played_ms / 1000)
        contexts = self.contexts.all() if name is None else [self.contexts.get(name)]
        for context in contexts:
            if context is not None:
                context.open = None
                for utterance in tuple(context.live):
                    utterance.cancel("client_cancel")

    def _report(self, name: str, played_s: float) -> None:
        self._configured()
        context = self.contexts.get(name)
        if context is not None and context.live:
            context.live[0].played(played_s)

    def _close(self) -> None:
        """What was flushed is still spoken; text that was not is dropped."""
        for context in self.contexts.all():
            dropped = self.contexts.shut(context.name)
            if dropped is not None:
                self.warn("text_dropped", {"context_id": context.name})
                dropped.cancel("client_cancel")
        self._end_when_over(limits.NORMAL)

    def _end_when_over(self, code: int) -> None:
        self._ended_by = code
        if not self.contexts.utterances():
            self._outbox.close(code)

    def _configured(self) -> Settings:
        if self.settings is None:
            raise InvalidRequestError("send session.config first", code="session_not_configured")
        return self.settings

    def _refuse_when_ending(self) -> None:
        if self._ended_by == limits.GOING_AWAY:
            raise UnavailableError(
                "the server is shutting down", code="draining", retry_after_s=1.0
            )
        if self._ended_by is not None:
            raise InvalidRequestError("the session is closing", code="session_closing")
