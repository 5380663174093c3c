"""What the routes share: the configuration, the engine, the model's host logic, the counters."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Iterator
from typing import Protocol

from fastapi import Request, WebSocket

from voxserve import checkpoints
from voxserve.api.auth import KeyRing
from voxserve.api.clip_source import ClipSource
from voxserve.api.clips import Clips
from voxserve.api.encoding import Encoders
from voxserve.api.engine_client import EngineClient
from voxserve.api.engine_metrics import EngineCollector
from voxserve.api.media_fetch import MediaFetcher
from voxserve.api.metrics import Metrics
from voxserve.api.outcomes import Outcomes
from voxserve.api.tracing import tracing_to
from voxserve.api.voice_store import StoredVoice, VoiceStore
from voxserve.config import Config
from voxserve.errors import UnavailableError
from voxserve.plugin import HostLogic

DRAIN_POLL_S = 0.02


class Session(Protocol):
    """An open WebSocket session."""

    def drain(self) -> None:
        """Take nothing new, finish what runs, then close. Returns at once."""

    def end(self) -> None:
        """Close now."""


class Service:
    """One a server. draining: set for good by `drain`. sessions: open WebSockets."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.started_at = time.time()
        self.client = EngineClient(config)
        self.keys = KeyRing(config.api.api_keys, config.api.api_key_file)
        self.tracing = tracing_to(config.api.otlp_endpoint)
        self.metrics = Metrics(config.served_name or config.model)
        self.metrics.registry.register(EngineCollector(self.client, self.metrics.own))
        self.client.on_release = self.metrics.release.observe
        self.encoders = Encoders(config.api.encoder_threads, self.metrics.encoder)
        self.outcomes = Outcomes()
        fetcher = MediaFetcher(config.api.media_domains)
        self.clips = Clips(ClipSource(fetcher, config.api.media_dir))
        self.voices = VoiceStore(config.api.voices_dir)
        self.voices_lock = asyncio.Lock()
        self.sessions: set[Session] = set()
        self.draining = False
        self.running = 0
        self._host: HostLogic | None = None

    async def boot(self) -> None:
        """Find the model, load its host logic beside the event loop, start the engine.

        Raises CheckpointError when the model cannot be found.
        """
        await asyncio.to_thread(self.voices.load)
        self._host = await asyncio.to_thread(_load_host, self.config)
        await self.client.start()
        # The engine takes longer than this, and whatever waits for it now waits for nothing else.
        await asyncio.to_thread(self.encoders.warm)

    def host(self) -> HostLogic:
        """Raises UnavailableError (`starting`, `draining`) while nothing can be asked of it."""
        if self.draining:
            raise UnavailableError(
                "the server is shutting down", code="draining", retry_after_s=1.0
            )
        if self._host is None:
            raise UnavailableError("the model is still loading", code="starting", retry_after_s=5.0)
        return self._host

    @property
    def ready(self) -> bool:
        return self.client.phase == "ready" and not self.draining

    @property
    def loaded_host(self) -> HostLogic | None:
        return self._host

    def uploaded(self) -> list[StoredVoice]:
        """Voices that can be asked for beside the model's own; none if it cannot clone them."""
        return self.voices.all() if self._host is not None and self._host.info.cloning else []

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Around one speech request or utterance: `drain` waits for it."""
        self.running += 1
        self.metrics.in_flight.inc()
        try:
            yield
        finally:
            self.running -= 1
            self.metrics.in_flight.dec()

    async def drain(self, timeout_s: float) -> None:
        """Refuse what is new, wait for what runs, at most `timeout_s`."""
        self.draining = True
        deadline = time.monotonic() + timeout_s
        for session in tuple(self.sessions):
            session.drain()
        while (self.running or self.sessions) and time.monotonic() < deadline:
            await asyncio.sleep(DRAIN_POLL_S)
        for session in tuple(self.sessions):
            session.end()


def service_of(connection: Request | WebSocket) -> Service:
    service = connection.app.state.service
    assert isinstance(service, Service)
    return service


def known_host(service: Service) -> HostLogic:
    """The host logic for what needs no engine: before that is ready, and still while it drains.

    Raises UnavailableError (`starting`).
    """
    if service.loaded_host is None:
        raise UnavailableError("the model is still loading", code="starting", retry_after_s=5)
    return service.loaded_host


def config_hash(config: Config) -> str:
    """Tells configurations apart; keys are not part of it."""
    text = config.model_dump_json(exclude={"api": {"api_keys"}})
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _load_host(config: Config) -> HostLogic:
    plugin, checkpoint = checkpoints.find(config.model, dummy=config.load_format == "dummy")
    return plugin.host(checkpoint)
