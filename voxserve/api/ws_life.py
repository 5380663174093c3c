"""What WebSocket sessions of every dialect share: their utterances, their limits, their end."""

import logging
import secrets
import time
from collections.abc import Callable, Mapping

from voxserve.api import ws_limits as limits
from voxserve.api.gate import AccessRecord
from voxserve.api.logs import log_fields
from voxserve.api.service import Service
from voxserve.api.speech_request import SpeechPlan
from voxserve.api.units import TextLimits
from voxserve.api.ws_contexts import Context, Contexts
from voxserve.api.ws_events import Events, Place
from voxserve.api.ws_outbox import Outbox
from voxserve.api.ws_text import UtteranceText
from voxserve.api.ws_utterance import Settings, Utterance
from voxserve.errors import InvalidRequestError, UnavailableError, VoxserveError

_log = logging.getLogger("voxserve.access")


class Life:
    """One a session. utterances: begun so far. last_active: when anything last happened.

    request_id: of the handshake; utterances are named after it. ending: no more utterance begins,
    and the session is over with the last that runs.
    """

    def __init__(self, service: Service, outbox: Outbox, record: AccessRecord) -> None:
        self.service = service
        self.outbox = outbox
        self.request_id = record.request_id
        self.session_id = f"session-{secrets.token_hex(8)}"
        self.contexts = Contexts()
        self.utterances = 0
        self.last_active = time.monotonic()
        self._key_id = record.key_id
        self._ended_by: int | None = None

    def drain(self) -> None:
        """The server is going: take no new utterance, let the running ones end."""
        self.end_when_over(limits.GOING_AWAY)

    def end(self) -> None:
        """The server goes now."""
        for utterance in self.contexts.utterances():
            utterance.cancel("timeout")
        self.outbox.close(limits.GOING_AWAY, "the server is shutting down")

    def end_when_over(self, code: int) -> None:
        """Close with that code once everything that runs has been sent."""
        self._ended_by = code
        self._end_if_over()

    def refuse_when_ending(self) -> None:
        """Raises UnavailableError (`draining`) or InvalidRequestError (`session_closing`)."""
        if self._ended_by == limits.GOING_AWAY:
            raise UnavailableError(
                "the server is shutting down", code="draining", retry_after_s=1.0
            )
        if self._ended_by is not None:
            raise InvalidRequestError("the session is closing", code="session_closing")

    def fatal(self, error: VoxserveError) -> int | None:
        """The code to close with. While other utterances run, nothing is that bad."""
        return None if self.contexts.utterances() else limits.FATAL_CODES.get(error.code)

    def check_text(self, text: str) -> None:
        """Raises InvalidRequestError (`too_much_text`) when so much more cannot be held."""
        if self.contexts.chars + len(text) > limits.MAX_BUFFERED_CHARS:
            raise InvalidRequestError(
                f"more than {limits.MAX_BUFFERED_CHARS} characters are buffered",
                code="too_much_text",
            )

    def opened(self, name: str, create: Callable[[Context], Utterance]) -> Utterance:
        """The utterance of a context that takes text, made with `create` if there is none.

        Raises VoxserveError when no more may begin.
        """
        held = self.contexts.get(name)
        if held is None or held.open is None:
            self.refuse_when_ending()
            waiting = len(self.contexts.utterances())
            if waiting >= limits.MAX_UTTERANCES:
                raise InvalidRequestError(
                    f"{waiting} utterances wait, at most {limits.MAX_UTTERANCES}",
                    code="too_many_utterances",
                )
        return self.contexts.opened(name, create)

    def utterance(
        self,
        settings: Settings,
        context: Context,
        events: Callable[[Place, SpeechPlan], Events],
        on_over: Callable[[Utterance, VoxserveError | None], None],
    ) -> Utterance:
        """A new one at the end of a context. on_over: must call `over`.

        Raises VoxserveError; then nothing has begun.
        """
        host, fields = self.service.host(), settings.fields
        plan = settings.plan.with_new_seed(fields.seed)
        text_limits = TextLimits.of(self.service.config)
        text = UtteranceText(host, plan, text_limits, fields.split_granularity)
        index = self.utterances
        self.utterances += 1
        request_id = f"{self.request_id}.{index}"
        place = Place(context.name, context.number, index, request_id, self._key_id)
        before = context.live[-1] if context.live else None
        return Utterance(
            self.service, settings, plan, text, events(place, plan), place, before, on_over
        )

    def over(
        self, utterance: Utterance, tell: Callable[[], None], labels: Mapping[str, object]
    ) -> None:
        """Forget an utterance. tell: what the client hears of it before the session may end.
        labels: for the log."""
        self.last_active = time.monotonic()
        self.contexts.forget(utterance)
        log_fields(_log, "utterance", {**utterance.log_fields(), **labels})
        tell()
        self._end_if_over()

    async def flush(self, name: str) -> None:
        """End the open utterance of a context, if there is one. Raises VoxserveError; then it is
        cancelled."""
        utterance = self.contexts.shut(name)
        if utterance is not None:
            try:
                await utterance.end()
            except VoxserveError:
                utterance.cancel("client_cancel")
                raise

    async def flush_due(self, now: float, about: Callable[[str], None]) -> None:
        """Speak what has waited long enough for more text. about: called with the context before
        its utterance ends for that. Raises VoxserveError."""
        for utterance in self.contexts.due(now):
            if not utterance.over and not utterance.release():
                about(utterance.place.context)
                await self.flush(utterance.place.context)

    def deadline(self, idle_s: float) -> float:
        """When something happens without the client."""
        if not self.contexts.utterances():
            return self.last_active + idle_s
        flush_at = self.contexts.next_flush()
        return time.monotonic() + limits.LONGEST_WAIT_S if flush_at is None else flush_at

    def _end_if_over(self) -> None:
        if self._ended_by is not None and not self.contexts.utterances():
            self.outbox.close(self._ended_by)
