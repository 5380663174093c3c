"""The API process's side of the engine: submits requests, supervises and restarts the process."""

import asyncio
import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from voxserve import wire
from voxserve.api.engine_clips import EngineClips
from voxserve.api.engine_process import EngineProcess
from voxserve.api.engine_stream import Stream
from voxserve.config import Config
from voxserve.errors import (
    GenerationError,
    InvalidRequestError,
    TimeoutExceededError,
    UnavailableError,
    VoxserveError,
)
from voxserve.requests import Prompt

Phase = Literal["starting", "ready", "restarting", "draining", "failed"]

_log = logging.getLogger("voxserve.engine")
_WATCH_S = 0.25
_RETRY_AFTER_S = {"starting": 5.0, "engine_restarting": 5.0, "draining": 1.0}
_ERRORS: dict[int, type[VoxserveError]] = {
    400: InvalidRequestError,
    503: UnavailableError,
    504: TimeoutExceededError,
}


class EngineClient:
    """phase: where the engine stands; `failed` after too many deaths, or one at its first start.
    progress: its last Warming. stats: its last Stats.

    restarts: engines started again after one died. on_release: called with the seconds between a
    Cancel and the engine's answer.
    """

    def __init__(self, config: Config) -> None:
        self.phase: Phase = "starting"
        self.progress: wire.Warming | None = None
        self.stats: wire.Stats | None = None
        self.slots = 0
        self.restarts = 0
        self.on_release: Callable[[float], None] = lambda seconds: None
        self._config = config
        self._engine: EngineProcess | None = None
        self._clips: EngineClips | None = None
        self._streams: dict[int, Stream] = {}
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Spawn the engine and supervise it from now on. Returns before it is ready."""
        self._supervisor = asyncio.create_task(self._supervise())
        self._supervisor.add_done_callback(self._on_supervisor_end)

    async def wait_ready(self) -> None:
        """Raises UnavailableError once the engine has been given up."""
        while self.phase != "ready":
            if self.phase in ("failed", "draining"):
                raise self._unavailable()
            await self.changed()

    async def changed(self) -> None:
        """Wait for the next change of `phase` or `progress`."""
        await self._changed.wait()

    def submit(
        self,
        prompt: Prompt,
        *,
        ttfa_s: float | None,
        speed: float = 1.0,
        max_ahead_s: float | None = None,
        window_s: float = 30.0,
        chunk_frames: int | None = None,
    ) -> Stream:
        """Start a request; arguments as in `wire.Submit`. Raises UnavailableError by phase."""
        if self.phase != "ready" or self._engine is None or self._clips is None:
            raise self._unavailable()
        if prompt.clip is not None:
            self._clips.hold(prompt.clip)
        number = next(self._numbers)
        stream = Stream(number, self._engine.send, window_s)
        self._streams[number] = stream
        self._engine.send(
            wire.Submit(
                request=number,
                arrival_s=time.monotonic(),
                prompt=wire.pack_prompt(prompt),
                ttfa_s=ttfa_s,
                speed=speed,
                max_ahead_s=max_ahead_s,
                window_s=window_s,
                chunk_frames=chunk_frames,
            )
        )
        return stream

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests, let the running ones end, then stop the engine."""
        was_ready = self.phase == "ready"
        self._set_phase("draining")
        engine = self._engine
        if engine is not None and was_ready:
            engine.send(wire.Drain())
            try:
                async with asyncio.timeout(timeout_s):
                    await engine.gone.wait()
            except TimeoutError:
                _log.warning("the engine did not drain within %.1f s", timeout_s)
        await self.close()

    async def close(self) -> None:
        """Stop at once: running streams fail, the process is gone on return."""
        self._set_phase("draining")
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        if self._engine is not None:
            await self._engine.close()
        self._fail_streams()

    def kill(self) -> None:
        """End the engine process now, without waiting for it."""
        if self._engine is not None:
            self._engine.kill()

    def _unavailable(self) -> UnavailableError:
        code = {"starting": "starting", "draining": "draining"}.get(self.phase, "engine_restarting")
        reason = {
            "starting": "the model is still loading",
            "draining": "the server is shutting down",
        }.get(self.phase, "the engine stopped and is being restarted")
        return UnavailableError(reason, code=code, retry_after_s=_RETRY_AFTER_S[code])

    def _on_supervisor_end(self, task: asyncio.Task[None]) -> None:
        """Without its supervisor the engine would never come back: better to give up visibly."""
        if not task.cancelled() and task.exception() is not None:
            _log.error("supervision of the engine ended", exc_info=task.exception())
            self._set_phase("failed")

    def _set_phase(self, phase: Phase) -> None:
        self.phase = phase
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _supervise(self) -> None:
        limits = self._config.engine
        ends: deque[float] = deque()
        while True:
            code = await self._run_one()
            if self.phase == "draining":
                return
            now = time.monotonic()
            ends.append(now)
            while now - ends[0] > limits.restart_window_s:
                ends.popleft()
            never_worked = not self.slots
            if never_worked or len(ends) > limits.restarts:
                _log.error("the engine ended with code %d, %d times, giving up", code, len(ends))
                self._set_phase("failed")
                return
            _log.error("the engine ended with code %d, starting another", code)
            self.restarts += 1

    async def _run_one(self) -> int:
        """From spawn to the end of one engine process; its exit code."""
        engine = self._engine = EngineProcess(self._on_message)
        self._clips = EngineClips(engine.send)
        try:
            await engine.spawn(self._config)
        except OSError as error:
            _log.error("the engine process cannot start: %s", error)
            return os.EX_OSERR
        watcher = asyncio.create_task(self._kill_when_hung(engine))
        await engine.gone.wait()
        watcher.cancel()
        if self.phase != "draining":
            self._set_phase("restarting")
        self.stats = None
        self._fail_streams()
        return await engine.close()

    async def _kill_when_hung(self, engine: EngineProcess) -> None:
        """Hang: no message (Stats come each second), or one launch, for longer than `hang_s`.

        Loading and warm-up are exempt.
        """
        hang_s = self._config.engine.hang_s
        while True:
            before = time.monotonic()
            await asyncio.sleep(_WATCH_S)
            now = time.monotonic()
            self_was_late = now - before > 4 * _WATCH_S
            if not engine.ready or self_was_late:
                continue
            step_age_s = self.stats.step_age_s if self.stats is not None else 0.0
            silent_s = now - engine.heard_at
            if max(step_age_s, silent_s) > hang_s:
                _log.error("the engine hangs: step %.1f s, silent %.1f s", step_age_s, silent_s)
                engine.kill()

    def _on_message(self, message: wire.FromEngine) -> None:
        if isinstance(message, wire.Stats):
            self.stats = message
        elif isinstance(message, wire.Warming):
            self.progress = message
            self._announce()
        elif isinstance(message, wire.Ready):
            self.slots = message.slots
            if self._engine is not None:
                self._engine.ready = True
            if self.phase != "draining":
                self._set_phase("ready")
        elif (stream := self._streams.get(message.request)) is not None:
            if isinstance(message, wire.Failed):
                stream.fail(_error(message))
            else:
                stream.receive(message)
            if stream.over:
                del self._streams[message.request]
                if stream.release_s is not None:
                    self.on_release(stream.release_s)

    def _fail_streams(self) -> None:
        for stream in self._streams.values():
            stream.fail(
                UnavailableError(
                    "the engine stopped during this request",
                    code="engine_restarting",
                    retry_after_s=_RETRY_AFTER_S["engine_restarting"],
                )
            )
        self._streams.clear()


def _error(failed: wire.Failed) -> VoxserveError:
    kind = _ERRORS.get(failed.status, GenerationError)
    return kind(failed.message, code=failed.code, retry_after_s=failed.retry_after_s)
