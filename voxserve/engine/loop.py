"""The engine's loop: messages in, launches out, codes and audio back; one thread, no polling."""

import gc
import logging
import time
from collections.abc import Callable
from typing import Literal

import numpy as np

from voxserve.engine.channel import Channel
from voxserve.engine.clips import Clip, ClipRows
from voxserve.engine.inputs import Inputs
from voxserve.engine.intake import Intake, Request
from voxserve.engine.lanes import Backend, LaneDone
from voxserve.engine.memory import Sizes
from voxserve.engine.pages import Pages
from voxserve.engine.slots import Slots
from voxserve.engine.stats import Counters
from voxserve.engine.trace import Trace
from voxserve.engine.waiting import Waiter
from voxserve.errors import GenerationError, UnavailableError, VoxserveError
from voxserve.plugin import EndReason, ModelSpec, StepLogic
from voxserve.scheduler.core import Scheduler
from voxserve.scheduler.launches import ALL_STEPS, BoolArray, Done, Launch, Outcome, Stage
from voxserve.wire import (
    AppendText,
    Cancel,
    Cancelled,
    Drain,
    Failed,
    Finished,
    ForgetClip,
    KeepClip,
    PcmChunk,
    Playback,
    Progress,
    Started,
    Submit,
    ToEngine,
    unpack_clip,
    unpack_rows,
)

_log = logging.getLogger(__name__)
_STATS_S = 1.0
_REASONS: dict[int, Literal["stop", "length", "guard"]] = {
    EndReason.STOP: "stop",
    EndReason.LENGTH: "length",
    EndReason.GUARD: "guard",
}


class Loop:
    """Carries the scheduler's plans out on a backend and tells the API process.

    A turn: take in messages, take in finished launches, start what the scheduler plans, free what
    it released, write. Launches come before writes, so a slow reader costs no lane any time.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        logic: StepLogic,
        spec: ModelSpec,
        sizes: Sizes,
        backend: Backend,
        channel: Channel,
        *,
        trace: Trace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.requests: dict[int, Request] = {}
        self.slots = Slots(sizes.slots, sizes.max_steps, spec.pad_row, logic)
        self.pages = {name: Pages(total) for name, total in sizes.pages.items()}
        of_clips = {
            name: Pages(sizes.clip_pages[name], first) for name, first in sizes.pages.items()
        }
        self.clips = ClipRows(sizes.clips, of_clips)
        self._scheduler = scheduler
        self._logic = logic
        self._spec = spec
        self._backend = backend
        self._channel = channel
        self._trace = trace
        self._clock = clock
        self._intake = Intake(spec, sizes, self.clips)
        self._inputs = Inputs(spec, sizes, self.slots, logic, self.requests)
        self._counters = Counters(sizes.slots, clock())
        self._waiter = Waiter(channel)
        self._wake_at_s = self._stats_at_s = clock()
        self._draining = False
        self._worked = False
        backend.on_done(self._waiter.wake)

    def serve(self) -> None:
        """Turn until drained, or until the API process is gone (raises ChannelClosed)."""
        while not (self._draining and self._scheduler.idle and not self._channel.backlog):
            self.turn()

    def drain(self) -> None:
        """Finish what runs, refuse the rest, then let `serve` return. Safe in a signal handler."""
        self._draining = True
        self._waiter.wake()

    def turn(self) -> None:
        """Sleep until there is something to do, then do all of it."""
        readable, ran = self._sleep()
        begin = now = self._clock()
        if self._draining:
            self._scheduler.drain()
        if readable:
            for message in self._channel.receive():
                self._take(message, now)
        for done in ran:
            self._finish(done, now)
        plan = self._scheduler.plan(now)
        self._wake_at_s = plan.wake_at_s
        for released in self._scheduler.released():
            self._free(released.request)
        for launch in plan.launches:
            self._start(launch, now)
        if now >= self._stats_at_s:
            self._beat(now)
        self._channel.flush()
        self._counters.turn(self._clock() - begin)

    def _sleep(self) -> tuple[bool, list[LaneDone]]:
        """Until a message, a finished launch, `wake` or the time. On a backend that polls this
        spins while a lane is busy, and plans nothing meanwhile.

        Returns whether there are messages, and the launches that have run.
        """
        until_s = min(self._wake_at_s, self._stats_at_s)
        while True:
            left_s = until_s - self._clock()
            spins = self._backend.polls and self._counters.in_flight > 0
            readable = self._waiter.wait(0.0 if spins else left_s)
            ran = [done for lane in self._backend.lanes.values() for done in iter(lane.poll, None)]
            if readable or ran or not spins or left_s <= 0:
                return readable, ran

    def close(self, *, wait: bool = True) -> None:
        """Finish the trace file and stop the lanes; the channel stays open.

        wait: for what runs on the lanes. Without it the process must end next.
        """
        if self._trace:
            self._trace.close()
        if wait:
            self._backend.close()
            self._waiter.close()

    def _take(self, message: ToEngine, now: float) -> None:
        match message:
            case Submit():
                self._submit(message, now)
            case KeepClip(key=key):
                self._intake.audio[key] = unpack_clip(message)
            case ForgetClip(key=key):
                self._intake.audio.pop(key, None)
            case AppendText(request=number):
                request = self.requests.get(number)
                if request is not None and not request.over:
                    self._append(request, message, now)
            case Cancel(request=number):
                seconds = self._scheduler.cancel(number, now)
                if seconds is not None:
                    self._end(self.requests[number])
                    self._channel.send(Cancelled(number, seconds))
            case Progress(request=number, taken_s=seconds):
                if number in self.requests:
                    self._scheduler.taken(number, seconds)
            case Playback(request=number, played_s=seconds):
                if number in self.requests:
                    self._scheduler.played(number, seconds, now)
            case Drain():
                self._draining = True
                self._scheduler.drain()

    def _submit(self, submit: Submit, now: float) -> None:
        assert submit.request not in self.requests, f"request {submit.request} came twice"
        try:
            request, arrival = self._intake.accept(submit)
        except VoxserveError as error:
            self._refuse(submit.request, error)
            return
        refusal = self._scheduler.submit(arrival, now)
        if refusal is None:
            self.requests[submit.request] = request
            return
        self._let_clip_go(request)
        refused = UnavailableError(
            refusal.message, code=refusal.code, retry_after_s=refusal.retry_after_s
        )
        self._refuse(submit.request, refused)

    def _append(self, request: Request, message: AppendText, now: float) -> None:
        rows = unpack_rows(message.rows, self._spec.inject_columns)
        if request.slot < 0:
            request.text.append(rows)
        else:
            self.slots.inject(request.slot, request.injected, rows)
        request.injected += len(rows)
        allowed = ALL_STEPS if message.ended else 1 + request.injected
        self._scheduler.allow(request.number, allowed, now)

    def _start(self, launch: Launch, now: float) -> None:
        """Put a launch on its lane; when that fails it fails its own rows."""
        try:
            if launch.stage is Stage.PREFILL:
                self._admit(launch, now)
            elif launch.stage is Stage.ENCODE:
                for clip in self._encoding(launch):
                    self.clips.place(clip)
            inputs = self._inputs.build(launch)
            executable = self._backend.executable(launch)
        except Exception:
            _log.exception("a %s launch could not be started", launch.stage.name.lower())
            self._settle(Done(launch, 0.0, failed=self._void(launch)), now)
            self._wake_at_s = now
            return
        self._counters.started(launch, now)
        self._backend.lanes[launch.lane].launch(launch, executable, inputs)

    def _admit(self, launch: Launch, now: float) -> None:
        for number, slot in zip(launch.requests.tolist(), launch.slots.tolist(), strict=True):
            request = self.requests[number]
            request.slot = slot
            for pool, need in zip(self.pages, request.needs, strict=True):
                request.pages[pool] = self.pages[pool].take(need)
            self.slots.admit(slot, number, request.prompt)
            first = 0
            for rows in request.text:
                self.slots.inject(slot, first, rows)
                first += len(rows)
            request.text.clear()
            queue_s = now - request.arrival_s
            self._channel.send(Started(number, queue_s, min(launch.held_s, queue_s)))

    def _finish(self, done: LaneDone, now: float) -> None:
        self._worked = True
        self._counters.done(done)
        if self._trace:
            self._trace.launch(done)
        launch = done.launch
        result = None
        try:
            result = self._read(done)
        except Exception:
            _log.exception("a %s launch could not be read", launch.stage.name.lower())
        if result is None:
            result = Done(launch, done.end_s - done.begin_s, failed=self._void(launch))
        outcome = self._settle(result, now)
        if outcome.deliver is not None and result.samples is not None:
            assert outcome.final is not None
            self._deliver(done, result.samples, outcome.deliver, outcome.final)

    def _settle(self, result: Done, now: float) -> Outcome:
        """Tell the scheduler, and the clients of requests that are over without a last chunk."""
        outcome = self._scheduler.finish(result, now)
        if result.failed is not None:
            if result.launch.stage is Stage.ENCODE:
                for clip in self._encoding(result.launch):
                    self.clips.displace(clip)
            for request in self._failed(result.launch, result.failed):
                self._fail(request)
        for number in outcome.finished:
            self._complete(self.requests[number])
        return outcome

    def _encoding(self, launch: Launch) -> list[Clip]:
        """The clips of an encoder's launch."""
        clips = [self.requests[number].clip for number in launch.requests.tolist()]
        return [clip for clip in clips if clip is not None]

    def _failed(self, launch: Launch, failed: BoolArray) -> list[Request]:
        if launch.stage is Stage.ENCODE:
            # Everybody who waits for the clip fails with the one whose launch it was.
            numbers = set(launch.slots.tolist())
            return [
                request
                for request in self.requests.values()
                if request.clip and request.clip.number in numbers and not request.over
            ]
        return [self.requests[number] for number in launch.requests[failed].tolist()]

    def _read(self, done: LaneDone) -> Done | None:
        """What the scheduler must know of a finished launch; None when the launch failed."""
        launch, run_s = done.launch, done.end_s - done.begin_s
        if done.error is not None:
            return None
        if launch.stage is Stage.ENCODE:
            for clip in self._encoding(launch):
                clip.encoded = True
            return Done(launch, run_s)
        if launch.stage is Stage.CODEC:
            assert launch.first_frame is not None and launch.frames is not None
            assert launch.last is not None
            of = self._logic.chunk_samples
            chunks = zip(
                launch.first_frame.tolist(),
                launch.frames.tolist(),
                launch.last.tolist(),
                strict=True,
            )
            samples = np.array([of(*chunk) for chunk in chunks], np.int32)
            return Done(launch, run_s, samples=samples)
        codes = done.outputs["codes"][: len(launch.slots)].astype(np.int32, copy=False)
        frames, ended = self.slots.accept(launch, codes)
        return Done(launch, run_s, frames=frames, ended=ended)

    def _void(self, launch: Launch) -> BoolArray:
        """[n] bool: rows of a failed launch that somebody still waits for."""
        if launch.stage is Stage.ENCODE:
            return np.ones(len(launch.requests), np.bool_)
        if launch.stage is Stage.DECODE:
            live: BoolArray = self.slots.live[launch.slots]
            return live
        over = [self.requests[number].over for number in launch.requests.tolist()]
        return ~np.array(over, np.bool_)

    def _deliver(
        self, done: LaneDone, samples: np.ndarray, deliver: BoolArray, final: BoolArray
    ) -> None:
        launch, pcm = done.launch, done.outputs["pcm"]
        assert launch.chunks is not None
        columns = (launch.requests, launch.chunks, samples, deliver, final)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for row, (number, chunk, count, goes_out, last) in enumerate(rows):
            if goes_out:
                self._channel.send(PcmChunk(number, chunk, pcm[row, :count].tobytes(), last))
            if last:
                self._complete(self.requests[number])

    def _complete(self, request: Request) -> None:
        slot = request.slot
        self._channel.send(
            Finished(
                request.number,
                _REASONS[int(self.slots.ended[slot])],
                frames=int(self.slots.frames[slot]),
                steps=int(self.slots.steps[slot]),
            )
        )
        self._end(request)

    def _fail(self, request: Request) -> None:
        self._end(request)
        self._refuse(request.number, GenerationError("the model failed on this request"))

    def _refuse(self, number: int, error: VoxserveError) -> None:
        self._channel.send(
            Failed(number, error.status, error.code, error.message, error.retry_after_s)
        )

    def _end(self, request: Request) -> None:
        request.over = True
        if request.slot >= 0:
            self.slots.live[request.slot] = False

    def _free(self, number: int) -> None:
        request = self.requests.pop(number)
        self._let_clip_go(request)
        for pool, pages in request.pages.items():
            self.pages[pool].give(pages)
        if request.slot >= 0:
            self.slots.free(request.slot)

    def _let_clip_go(self, request: Request) -> None:
        if request.prompt.clip is not None:
            self.clips.let_go(request.prompt.clip.key)

    def _beat(self, now: float) -> None:
        """Once a second: the heartbeat, the trace file, and garbage while nobody waits."""
        self._stats_at_s = now + _STATS_S
        self._channel.send(self._counters.take(self._scheduler, self.pages, now))
        if self._trace:
            self._trace.flush()
        if self._worked and self._scheduler.idle:
            gc.collect()
            self._worked = False
