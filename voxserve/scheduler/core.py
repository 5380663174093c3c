"""The scheduler: which launches to start now, and what follows from those that have run.

Pure: time comes in as an argument, and the same events at the same times give the same launches.
All seconds of audio that cross this interface are output seconds, audio divided by its speed.
"""

from typing import Any

import numpy as np

from voxserve.scheduler.admission import Waiting, refusal
from voxserve.scheduler.buckets import Buckets
from voxserve.scheduler.chunks import Batch, Chunks
from voxserve.scheduler.estimates import Estimates
from voxserve.scheduler.launches import (
    Arrival,
    Done,
    Lane,
    Launch,
    Outcome,
    Plan,
    Refusal,
    Released,
    Stage,
)
from voxserve.scheduler.lifecycle import CAUSES, Event, Phase, Request
from voxserve.scheduler.load import Load
from voxserve.scheduler.overload import Hold, Overload
from voxserve.scheduler.policy import Policy, Shape
from voxserve.scheduler.rows import Rows, Slots


class Scheduler:
    """Drives requests from `submit` to `released`; see docs/scheduling.md for the policy.

    The caller starts the launches of every `plan` in their order, reports each with `finish`, and
    plans again after every event and at `Plan.wake_at_s`.
    prefills: prompts launched so far.
    """

    def __init__(self, shape: Shape, policy: Policy, estimates: Estimates) -> None:
        self._policy = policy
        self._estimates = estimates
        self._rows = rows = Rows(shape)
        self._waiting = Waiting(shape, policy)
        self._load = Load(shape, policy, estimates, rows)
        self._overload = Overload(shape, policy, self._load, self._waiting)
        self._hold = Hold(shape, policy, self._load, rows)
        self._chunks = Chunks(shape, policy, estimates, rows)
        self._decode_rows = Buckets(shape.decode_rows)
        self._prefill_rows = Buckets(shape.prefill_rows)
        self._chunk = shape.frame_buckets[-1]
        self._requests: dict[int, Request] = {}
        self._in_flight = dict.fromkeys(Lane, 0)
        self._released: list[Released] = []
        self._draining = False
        self._orders = 0
        self._numbers = 0
        self._held = False
        self.prefills = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._rows.request) - self._waiting.slots_free

    @property
    def slots_free(self) -> int:
        return self._waiting.slots_free

    @property
    def pages_free(self) -> tuple[int, ...]:
        return self._waiting.pages_free

    @property
    def idle(self) -> bool:
        """Nothing waits, runs or is in flight."""
        return not self._requests and not any(self._in_flight.values())

    def drain(self) -> None:
        """Refuse everything new from now on."""
        self._draining = True

    def submit(self, arrival: Arrival, now: float) -> Refusal | None:
        """Take a request in, or say why not. Its id must be new."""
        assert arrival.request not in self._requests, f"request {arrival.request} is known"
        if self._draining:
            return refusal("draining", "the server is shutting down", 1.0)
        misfit = self._waiting.misfit(arrival)
        if misfit is not None:
            return refusal("out_of_memory", misfit, 0.0)
        refused = self._overload.refuse(arrival, self._orders, self.running, now)
        if refused is not None:
            return refused
        deadline_s = np.inf if arrival.ttfa_s is None else arrival.arrival_s + arrival.ttfa_s
        request = Request(arrival, self._orders, deadline_s, Phase.QUEUED, arrival.steps_allowed)
        self._orders += 1
        self._requests[arrival.request] = request
        self._waiting.add(request)
        return None

    def allow(self, request: int, steps_allowed: int, now: float) -> None:
        """Live text: so many LM steps have theirs (ALL_STEPS once it is complete)."""
        known = self._requests.get(request)
        if known is None or known.over:
            return
        known.allowed = steps_allowed
        rows, slot, arrival = self._rows, known.slot, known.arrival
        if slot < 0 or not rows.generating[slot]:
            return
        if arrival.ttfa_s is not None and rows.launched[slot] >= rows.cap[slot]:
            rows.restart_clock(slot, now + arrival.ttfa_s)
        rows.cap[slot] = min(arrival.max_steps, steps_allowed)

    def cancel(self, request: int, now: float) -> float | None:
        """End a request early. Returns the seconds of audio made so far, None if it is over."""
        return self._abandon(request, Event.CANCELLED)

    def fail(self, request: int, now: float) -> bool:
        """End a request that went wrong outside; False if it is over already."""
        return self._abandon(request, Event.FAILED) is not None

    def taken(self, request: int, taken_s: float) -> None:
        """The client's socket has taken so many seconds of the request's audio."""
        known = self._requests.get(request)
        if known is not None and known.slot >= 0 and not known.over:
            self._rows.take(known.slot, taken_s)

    def played(self, request: int, played_s: float, now: float) -> None:
        """The client has played so many seconds; replaces the estimate of its playback."""
        known = self._requests.get(request)
        if known is not None and known.slot >= 0 and not known.over:
            self._rows.play(known.slot, played_s, now)

    def released(self) -> list[Released]:
        """What became free since the last call."""
        released, self._released = self._released, []
        return released

    def plan(self, now: float) -> Plan:
        """The launches to start now, in order, and when to plan again at the latest."""
        launches: list[Launch] = []
        runnable, wake_at_s = self._rows.runnable(now)
        lm_idle = not self._in_flight[Lane.LM] and not len(runnable) and not self._can_admit()
        step_s = self._load.step_s(self.running)
        self._chunks.look(now)
        if self._free(Lane.URGENT):
            self._decode(launches, self._chunks.urgent(step_s, lm_idle))
        if not self._policy.overlap and self._free(Lane.BACKGROUND):
            self._decode(launches, self._chunks.background(step_s, lm_idle))
        self._held = False
        while self._free(Lane.LM):
            if not (self._admit(launches, runnable, now) or self._step(launches, runnable, now)):
                break
            if self._free(Lane.LM):
                runnable, wake_at_s = self._rows.runnable(now)
        if self._free(Lane.BACKGROUND):
            self._decode(launches, self._chunks.background(step_s, lm_idle))
        if not self._in_flight[Lane.LM]:
            self._load.rested()
        if not self._free(Lane.LM):
            wake_at_s = np.inf
        return Plan(launches, min(wake_at_s, self._wake_at_s()))

    def finish(self, done: Done, now: float) -> Outcome:
        """Take in a launch that has run."""
        launch = done.launch
        self._in_flight[launch.lane] -= 1
        if done.failed is None:
            self._estimates.record(launch, done.run_s)
        if launch.stage is Stage.ENCODE:
            self._finish_encode(launch, done)
            return Outcome()
        if launch.stage is Stage.CODEC:
            outcome = self._finish_codec(launch, done, now)
        else:
            outcome = self._finish_step(launch, done, now)
        slots = launch.slots
        free = slots[~self._rows.live[slots] & (self._rows.held[slots] == 0)]
        for slot in free.tolist():
            self._release(self._request_in(slot))
        return outcome

    def _free(self, lane: Lane) -> bool:
        if not self._policy.overlap:
            return not any(self._in_flight.values())
        return self._in_flight[lane] < (self._policy.lm_in_flight if lane is Lane.LM else 1)

    def _can_admit(self) -> bool:
        return self._waiting.next_clip() is not None or bool(self._waiting.next_prefill()[0])

    def _wake_at_s(self) -> float:
        if not self._policy.overlap and any(self._in_flight.values()):
            return np.inf
        urgent, background = self._free(Lane.URGENT), self._free(Lane.BACKGROUND)
        wake_at_s = self._chunks.wake_at_s(urgent, background)
        if self._held:
            wake_at_s = min(wake_at_s, self._hold.until_s)
        return wake_at_s

    def _admit(self, launches: list[Launch], runnable: Slots, now: float) -> bool:
        """Start the encoder or a prefill, unless there is none or it has to wait."""
        clip = self._waiting.next_clip()
        if clip is not None:
            request, seconds = clip
            if self._holds([], self._load.encode_s(seconds), runnable, now):
                return False
            launches.append(self._encode(request, seconds))
            return True
        batch, tokens = self._waiting.next_prefill()
        if not batch:
            self._hold.clear()
            return False
        held_s = self._hold.held_s(now)
        if self._holds(batch, self._load.prefill_s(len(batch), tokens), runnable, now):
            return False
        launches.append(self._prefill(batch, tokens, held_s, now))
        return True

    def _holds(self, batch: list[Request], run_s: float, runnable: Slots, now: float) -> bool:
        self._held = self._hold.holds(batch, run_s, runnable, self.running, now)
        if not self._held:
            self._hold.clear()
        return self._held

    def _launch(self, lane: Lane, stage: Stage, rows: int, units: int, **arrays: Any) -> Launch:
        self._in_flight[lane] += 1
        self._numbers += 1
        return Launch(self._numbers - 1, lane, stage, rows, units, **arrays)

    def _encode(self, request: Request, seconds: int) -> Launch:
        self._waiting.launch_clip(request.arrival.clip)
        request.encodes += 1
        requests = np.array([request.arrival.request], np.int32)
        slots = np.array([request.arrival.clip], np.intp)
        return self._launch(Lane.LM, Stage.ENCODE, 1, seconds, requests=requests, slots=slots)

    def _prefill(self, batch: list[Request], tokens: int, held_s: float, now: float) -> Launch:
        for request in batch:
            ramp = self._load.ramp(request.arrival, self.running)
            self._waiting.take(request)
            self._rows.admit(request, request.slot, ramp, now)
            request.advance(Event.ADMITTED)
        self.prefills += len(batch)
        slots = np.array([request.slot for request in batch], np.intp)
        return self._launch(
            Lane.LM,
            Stage.PREFILL,
            self._prefill_rows.holding(len(batch)),
            tokens,
            requests=self._rows.request[slots],
            slots=slots,
            steps=self._rows.step(slots),
            held_s=held_s,
        )

    def _step(self, launches: list[Launch], runnable: Slots, now: float) -> bool:
        """Start a decode step of all that can be advanced, or of those most in need."""
        if not len(runnable):
            return False
        rows, most = self._rows, self._decode_rows.largest
        if len(runnable) > most:
            rank = rows.order[runnable]
            if self._policy.admission == "deadline":
                step_s, codec_s = self._load.step_s(most), self._load.urgent_s(self._chunk)
                rank = np.lexsort((rank, rows.slack(runnable, now, step_s, codec_s)))
            else:
                rank = np.argsort(rank)
            runnable = np.sort(runnable[rank[:most]])
        slots = runnable
        launches.append(
            self._launch(
                Lane.LM,
                Stage.DECODE,
                self._decode_rows.holding(len(slots)),
                0,
                requests=rows.request[slots],
                slots=slots,
                steps=rows.step(slots),
            )
        )
        return True

    def _decode(self, launches: list[Launch], batch: Batch | None) -> None:
        """Start the codec on a batch of chunks."""
        if batch is None:
            return
        rows = self._rows
        slots = batch.slots
        launches.append(
            self._launch(
                batch.lane,
                Stage.CODEC,
                batch.rows,
                batch.units,
                requests=rows.request[slots],
                slots=slots,
                chunks=rows.chunk[slots],
                first_frame=rows.first[slots],
                frames=batch.frames,
                last=batch.last,
                reason=batch.reason,
            )
        )
        rows.decode(slots, batch.frames)

    def _finish_encode(self, launch: Launch, done: Done) -> None:
        holder = self._requests[int(launch.requests[0])]
        holder.encodes -= 1
        failed = done.failed is not None and bool(done.failed[0])
        for request in self._waiting.clip_done(int(launch.slots[0]), failed):
            if failed:
                self._waiting.remove(request)
                request.advance(Event.FAILED)
                self._release(request)
        if holder.phase in (Phase.CANCELLED, Phase.FAILED):
            self._release(holder)

    def _finish_step(self, launch: Launch, done: Done, now: float) -> Outcome:
        outcome = Outcome()
        rows, slots, ended = self._rows, launch.slots, done.ended
        if done.failed is not None and done.failed.any():
            for slot in slots[done.failed & rows.live[slots]].tolist():
                self._end(self._request_in(slot), Event.FAILED)
        over = rows.accept(slots, done.frames, ended)
        if launch.stage is Stage.DECODE:
            self._load.stepped(now)
        else:
            for slot in slots[rows.live[slots]].tolist():
                self._request_in(slot).advance(Event.STEPPED)
        for slot in over.tolist():
            request = self._request_in(slot)
            request.advance(Event.ENDED)
            self._load.ended(int(rows.accepted[slot]), request.arrival.max_steps)
        for slot in over[rows.complete(over)].tolist():
            request = self._request_in(slot)
            self._end(request, Event.COMPLETED)
            outcome.finished.append(request.arrival.request)
        return outcome

    def _finish_codec(self, launch: Launch, done: Done, now: float) -> Outcome:
        rows, slots = self._rows, launch.slots
        rows.land(slots)
        deliver = rows.live[slots]
        if done.failed is not None:
            for slot in slots[done.failed & deliver].tolist():
                self._end(self._request_in(slot), Event.FAILED)
            deliver &= ~done.failed
        if done.samples is not None:
            rows.deliver(slots[deliver], done.samples[deliver], now)
        final = deliver & rows.complete(slots)
        for slot in slots[final].tolist():
            self._end(self._request_in(slot), Event.COMPLETED)
        return Outcome(deliver=deliver, final=final)

    def _request_in(self, slot: int) -> Request:
        return self._requests[int(self._rows.request[slot])]

    def _abandon(self, request_id: int, event: Event) -> float | None:
        request = self._requests.get(request_id)
        if request is None or request.over:
            return None
        if request.slot < 0:
            self._waiting.remove(request)
        self._end(request, event)
        if request.slot < 0:
            if not request.encodes:
                self._release(request)
            return 0.0
        made_s = float(self._rows.made_s[request.slot])
        if not self._rows.held[request.slot]:
            self._release(request)
        return made_s

    def _end(self, request: Request, event: Event) -> None:
        """The request is over; launches in flight may still hold it."""
        request.advance(event)
        if request.slot >= 0:
            self._rows.close(request.slot)

    def _release(self, request: Request) -> None:
        cause = CAUSES[request.phase]
        request.advance(Event.RELEASED)
        del self._requests[request.arrival.request]
        self._waiting.give_back(request)
        self._released.append(Released(request.arrival.request, request.slot, cause))
