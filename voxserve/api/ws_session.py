"""A WebSocket session: what each client message does. It never waits for the sending side."""

import time
from typing import Any

from voxserve.api import ws_limits as limits
from voxserve.api.cloning import with_clip
from voxserve.api.errors import error_body
from voxserve.api.schemas import SessionFields, parse
from voxserve.api.speech_request import SpeechPlan, resolve
from voxserve.api.units import TextLimits, check_short_text
from voxserve.api.ws_contexts import MAX_CONTEXTS, Context
from voxserve.api.ws_events import Place, UtteranceEvents
from voxserve.api.ws_life import Life
from voxserve.api.ws_messages import (
    CancelInput,
    ClientMessage,
    Close,
    Configure,
    Flush,
    Ping,
    Report,
    Text,
    event_id_of,
    parse_message,
)
from voxserve.api.ws_receive import check_size, flush_or_idle
from voxserve.api.ws_text import UtteranceText
from voxserve.api.ws_utterance import Settings, Utterance
from voxserve.errors import InvalidRequestError, TimeoutExceededError, VoxserveError

DEFAULT_FORMAT = "pcm"


class SpeechSession:
    """settings: None until session.config, which must come by `config_by`. ttfa_s: the target for
    each utterance's first audio."""

    def __init__(self, life: Life, ttfa_s: float, config_by: float) -> None:
        self.life = life
        self.settings: Settings | None = None
        self._ttfa_s = ttfa_s
        self._config_by = config_by
        self._errors = 0

    async def take(self, text: str) -> None:
        """One message. What is wrong with it is told to the client."""
        try:
            if '"session.config"' not in text:
                check_size(text)
        except InvalidRequestError as error:
            self.complain(error, limits.TOO_BIG)
            return
        try:
            message, event_id = parse_message(text)
        except InvalidRequestError as error:
            self._count_error(error, event_id_of(text))
            return
        try:
            await self._handle(message)
        except VoxserveError as error:
            self._count_error(error, event_id)

    def complain(self, error: VoxserveError, fatal: int | None = None) -> None:
        self._tell_error(error, fatal=fatal)

    def deadline(self) -> float:
        if self.settings is None:
            return self._config_by
        return self.life.deadline(self.settings.fields.idle_timeout_s)

    async def on_deadline(self, now: float) -> None:
        if self.settings is not None:
            await flush_or_idle(self, self.settings.fields.idle_timeout_s, now)
        elif now >= self._config_by:
            late = TimeoutExceededError("no session.config came", code="config_timeout")
            self.complain(late, limits.POLICY)

    def on_auto_flush(self, context: str) -> None:
        self._warn("flush_auto", {"context_id": context})

    async def _handle(self, message: ClientMessage) -> None:
        """Raises VoxserveError for what the client must be told. Only a session.config with a
        clip and long texts take a while, and neither holds up other sessions."""
        if not isinstance(message, Ping):
            self.life.last_active = time.monotonic()
        match message:
            case Ping():
                self.life.outbox.event({"type": "pong", "server_ms": round(time.time() * 1000)})
            case Configure(fields):
                await self._configure(fields)
            case Text(context, text):
                await self._append(context, text)
            case Flush(context, _, done):
                await self._flush(context)
                if done and self.settings is not None and self.settings.fields.compat == "sglang":
                    self.life.end_when_over(limits.NORMAL)
            case CancelInput(context, played_ms):
                self._cancel(context, played_ms)
            case Report(context, played_ms):
                self._report(context, played_ms / 1000)
            case Close():
                self._close()

    async def _flush(self, context: str) -> None:
        """End the open utterance of a context; without one, an empty one is over at once."""
        self._open(context)
        await self.life.flush(context)

    def _warn(self, code: str, content: dict[str, Any]) -> None:
        self.life.outbox.event({"type": "warning", "code": code, **content})

    def _tell_error(
        self,
        error: VoxserveError,
        *,
        where: dict[str, Any] | None = None,
        event_id: str | None = None,
        fatal: int | None = None,
    ) -> None:
        """An `error` event; with `fatal` the session closes with that code behind it."""
        content = error_body(error, self.life.request_id)
        extra = {} if event_id is None else {"event_id": event_id}
        self.life.outbox.event(
            {"type": "error", **content, **(where or {}), **extra, "fatal": fatal is not None}
        )
        if fatal is not None:
            self.life.outbox.close(fatal, error.code)

    def _count_error(self, error: VoxserveError, event_id: str | None) -> None:
        """A message was refused; the tenth ends the session."""
        self._errors += 1
        too_many = self._errors >= limits.MAX_ERRORS
        fatal = limits.POLICY if too_many else self.life.fatal(error)
        self._tell_error(error, event_id=event_id, fatal=fatal)

    async def _configure(self, fields: dict[str, Any]) -> None:
        host, config = self.life.service.host(), self.life.service.config
        if self.life.contexts.utterances():
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
            uploaded=self.life.service.uploaded(),
        )
        if session.audio_transport == "tagged" and plan.output.format.name != "pcm":
            raise InvalidRequestError(
                f"response_format is {plan.output.format.name}, tagged frames carry pcm only",
                param="response_format",
            )
        service = self.life.service
        plan = await with_clip(plan, session, service.clips, service.voices, host)
        # What the model itself cannot honour is said now, not with the first text.
        UtteranceText(host, plan, TextLimits.of(config), session.split_granularity)
        check_short_text(host, plan.request, config.engine.context)
        self.settings = Settings(session, plan, self._ttfa_s)
        self.life.contexts.limit = 1 if session.audio_transport == "binary" else MAX_CONTEXTS
        self.life.outbox.event(
            {
                "type": "session.configured",
                "session_id": self.life.session_id,
                "sample_rate": plan.output.sample_rate_hz,
                "format": plan.output.format.name,
                "voice": plan.request.voice,
                "audio_transport": session.audio_transport,
                "text_streaming": host.info.text_streaming and not plan.normalise,
            }
        )
        if ignored:
            self._warn("ignored_fields", {"fields": [name[:64] for name in ignored[:20]]})

    async def _append(self, context: str, text: str) -> None:
        self._configured()
        held = self.life.contexts.get(context)
        if not text or (not text.strip() and (held is None or held.open is None)):
            return  # A keep-alive of clients that must send something; nothing begins with it.
        try:
            self.life.check_text(text)
        except InvalidRequestError as error:
            self.complain(error, limits.TOO_BIG)
            return
        await self._open(context).append(text)

    def _open(self, name: str) -> Utterance:
        """The utterance of a context that takes text, a new one if need be."""
        settings = self._configured()
        return self.life.opened(name, lambda context: self._utterance(settings, context))

    def _utterance(self, settings: Settings, context: Context) -> Utterance:
        """Raises VoxserveError; then nothing has begun."""

        def events(place: Place, plan: SpeechPlan) -> UtteranceEvents:
            transport = settings.fields.audio_transport
            return UtteranceEvents(self.life.outbox, place, plan, transport)

        return self.life.utterance(settings, context, events, self._utterance_over)

    def _utterance_over(self, utterance: Utterance, error: VoxserveError | None) -> None:
        def tell() -> None:
            if error is not None:
                where = {
                    "context_id": utterance.place.context,
                    "utterance_index": utterance.place.index,
                    "partial_audio": utterance.events.sent_samples > 0,
                }
                self._tell_error(error, where=where, fatal=self.life.fatal(error))

        self.life.over(utterance, tell, self._client_labels())

    def _client_labels(self) -> dict[str, object]:
        """What the client wants to find in the log."""
        fields = self._configured().fields
        labels = {"user": fields.user, "metadata": fields.metadata}
        return {name: value for name, value in labels.items() if value is not None}

    def _cancel(self, name: str | None, played_ms: float | None) -> None:
        self._configured()
        if name is not None and played_ms is not None:
            self._report(name, played_ms / 1000)
        contexts = self.life.contexts.all() if name is None else [self.life.contexts.get(name)]
        for context in contexts:
            if context is not None:
                context.open = None
                for utterance in tuple(context.live):
                    utterance.cancel("client_cancel")

    def _report(self, name: str, played_s: float) -> None:
        self._configured()
        context = self.life.contexts.get(name)
        if context is not None and context.live:
            context.live[0].played(played_s)

    def _close(self) -> None:
        """What was flushed is still spoken; text that was not is dropped."""
        for context in self.life.contexts.all():
            dropped = self.life.contexts.shut(context.name)
            if dropped is not None:
                self._warn("text_dropped", {"context_id": context.name})
                dropped.cancel("client_cancel")
        self.life.end_when_over(limits.NORMAL)

    def _configured(self) -> Settings:
        if self.settings is None:
            raise InvalidRequestError("send session.config first", code="session_not_configured")
        return self.settings
