"""The scheduling policy once more, as plainly as it can be said: objects, lists and sorting.

Slow, and it shares nothing with the real scheduler but the words of `launches` and the running
quantiles, so that the two can be compared launch by launch. Longer than 400 lines: the whole policy
in one place is what makes it an oracle.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np

from voxserve.scheduler.estimates import Estimates, Quantile
from voxserve.scheduler.launches import (
    NO_CLIP,
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
from voxserve.scheduler.policy import Policy, Shape

PATIENCE_S = 5.0
SETTLE = 0.05


@dataclass(eq=False)
class Talk:
    """One request and all that is known of it. state: waiting, running, or how it ended."""

    arrival: Arrival
    order: int
    deadline: float
    allowed: int
    state: str = "waiting"
    needs_clip: bool = False
    slot: int = -1
    held: int = 0
    stepping: int = 0
    launched: int = 0
    accepted: int = 0
    frames: int = 0
    ended: bool = False
    decoding: bool = False
    sizes: tuple[int, ...] = ()
    chunk: int = 0
    first: int = 0
    due: float = 0.0
    sent: bool = False
    play_end: float = -math.inf
    made: float = 0.0
    taken: float = 0.0
    restart: tuple[int, float] = (-1, 0.0)

    @property
    def timed(self) -> bool:
        return self.arrival.ttfa_s is not None

    def size(self, chunk: int) -> int:
        return self.sizes[min(chunk, len(self.sizes) - 1)]

    def set_due(self, due: float) -> None:
        self.due = max(due, self.restart[1]) if self.restart[0] == self.chunk else due


@dataclass(eq=False)
class Clip:
    seconds: float
    pages: tuple[int, ...]
    launched: bool = False
    encoded: bool = False


class Oracle:
    """Answers the same calls as `voxserve.scheduler.core.Scheduler`, with the same results."""

    def __init__(self, shape: Shape, policy: Policy, estimates: Estimates) -> None:
        self.shape = shape
        self.policy = policy
        self.estimates = estimates
        self.talks: list[Talk] = []
        self.clips: dict[int, Clip] = {}
        self.free_slots = list(range(shape.slots))[::-1]
        self.in_flight: list[Launch] = []
        self.number = self.orders = 0
        self.gone: list[Released] = []
        self.draining = False
        self.held_since: float | None = None
        self.hold_until: float | None = None
        self.held_head: Talk | None = None
        self.held_spare = 0.0
        self.used = 1.0
        self.turn = Quantile()
        self.last_step: float | None = None

    # What the caller sees.

    @property
    def idle(self) -> bool:
        return not self.talks and not self.in_flight

    @property
    def slots_free(self) -> int:
        return len(self.free_slots)

    @property
    def pages_free(self) -> tuple[int, ...]:
        used = [t.arrival.pages for t in self.talks if t.slot >= 0]
        return tuple(n - sum(u[i] for u in used) for i, n in enumerate(self.shape.pages))

    @property
    def waiting(self) -> int:
        return len(self._queue())

    @property
    def running(self) -> int:
        return self.shape.slots - len(self.free_slots)

    def drain(self) -> None:
        self.draining = True

    def submit(self, arrival: Arrival, now: float) -> Refusal | None:
        code = self._refusal(arrival, now)
        if code:
            return Refusal(code, "", 0.0)
        deadline = math.inf if arrival.ttfa_s is None else arrival.arrival_s + arrival.ttfa_s
        talk = Talk(arrival, self.orders, deadline, arrival.steps_allowed)
        self.orders += 1
        self.talks.append(talk)
        if arrival.clip != NO_CLIP:
            there = arrival.clip_s == 0
            new = Clip(arrival.clip_s, arrival.clip_pages, launched=there, encoded=there)
            talk.needs_clip = not self.clips.setdefault(arrival.clip, new).encoded
        return None

    def allow(self, request: int, steps_allowed: int, now: float) -> None:
        talk = self._find(request)
        if talk is None:
            return
        starved = talk.launched >= self._cap(talk)
        talk.allowed = steps_allowed
        if talk.slot < 0 or talk.ended or not starved or talk.arrival.ttfa_s is None:
            return
        spf = self.shape.steps_per_frame
        covered = talk.frames + (talk.launched - talk.accepted) // spf
        chunk, need = talk.chunk, self._need(talk)
        while need <= covered:
            chunk += 1
            need += talk.size(chunk)
        talk.restart = (chunk, now + talk.arrival.ttfa_s)
        talk.set_due(talk.due)

    def cancel(self, request: int, now: float) -> float | None:
        talk = self._find(request)
        if talk is None:
            return None
        self._over(talk, "cancelled")
        return talk.made

    def fail(self, request: int, now: float) -> bool:
        talk = self._find(request)
        if talk is not None:
            self._over(talk, "failed")
        return talk is not None

    def taken(self, request: int, taken_s: float) -> None:
        talk = self._find(request)
        if talk is not None and talk.slot >= 0:
            talk.taken = taken_s

    def played(self, request: int, played_s: float, now: float) -> None:
        talk = self._find(request)
        if talk is None or not talk.sent:
            return
        end = now + max(talk.made - played_s, 0.0)
        moved = end - talk.play_end
        talk.play_end = end
        if talk.timed:
            talk.set_due(talk.due + moved)

    def released(self) -> list[Released]:
        gone, self.gone = self.gone, []
        return gone

    # What to start.

    def plan(self, now: float) -> Plan:
        launches: list[Launch] = []
        ready = sorted(
            (t for t in self._live() if not t.decoding and t.frames >= self._need(t)),
            key=lambda t: (t.due, t.order),
        )
        urgent = [t for t in ready if self._is_urgent(t, now)]
        calm = [t for t in ready if not self._is_urgent(t, now)]
        step_s = self._step_s(self.running)
        busy = any(launch.lane is Lane.LM for launch in self.in_flight)
        idle = not busy and not self._runnable(now) and not self._clip() and not self._batch()[0]
        both = self.policy.urgent_lane and self.policy.background_lane
        if self.policy.urgent_lane:
            self._codec(launches, Lane.URGENT, urgent, [] if both else calm, now, step_s, idle)
        background = ([] if both else urgent, calm, now, step_s, idle)
        if self.policy.background_lane and not self.policy.overlap:
            self._codec(launches, Lane.BACKGROUND, *background)
        self.hold_until = None
        while self._free(Lane.LM) and self._lm(launches, now):
            pass
        if self.policy.background_lane and self.policy.overlap:
            self._codec(launches, Lane.BACKGROUND, *background)
        if not any(launch.lane is Lane.LM for launch in self.in_flight):
            self.last_step = None
            self.turn = Quantile()
        return Plan(launches, self._wake([t for t in calm if not t.decoding], now, step_s))

    def _codec(
        self,
        launches: list[Launch],
        lane: Lane,
        urgent: list[Talk],
        calm: list[Talk],
        now: float,
        step_s: float,
        idle: bool,
    ) -> None:
        if not self._free(lane):
            return
        if urgent:
            reason = "deadline" if urgent[0].sent else "first"
        elif not calm:
            return
        elif len(calm) >= self.policy.background_batch:
            reason = "full"
        elif self._start_by(lane, calm, step_s) <= now:
            reason = "due"
        elif idle:
            reason = "idle"
        else:
            return
        talks, units = self._cut(lane, urgent + calm)
        if reason == "full":
            talks = self._worthwhile(lane, talks, units)
        frames = [self._chunk(t)[0] for t in talks]
        last = [self._chunk(t)[1] for t in talks]
        rows = _bucket(self.shape.codec_rows, len(talks))
        launch = self._launch(
            lane,
            Stage.CODEC,
            rows,
            units,
            talks,
            chunks=np.array([t.chunk for t in talks], np.int32),
            first_frame=np.array([t.first for t in talks], np.int32),
            frames=np.array(frames, np.int32),
            last=np.array(last),
            reason=reason,
        )
        launches.append(launch)
        for talk, count in zip(talks, frames, strict=True):
            talk.decoding = True
            talk.first += count
            talk.chunk += 1
            talk.set_due(talk.due + count * self._frame_s(talk))

    def _lm(self, launches: list[Launch], now: float) -> bool:
        runnable = self._runnable(now)
        clip = self._clip()
        batch, tokens = ([], 0) if clip else self._batch()
        held_s = 0.0 if self.held_since is None else now - self.held_since
        if clip:
            seconds = _bucket(self.shape.encode_seconds, self.clips[clip.arrival.clip].seconds)
            run_s = self.estimates.seconds(Lane.LM, Stage.ENCODE, 1, seconds)
            if not self._holds([], run_s, runnable, now):
                self.clips[clip.arrival.clip].launched = True
                launch = self._launch(Lane.LM, Stage.ENCODE, 1, seconds, [clip])
                launch.slots[0] = clip.arrival.clip
                launches.append(launch)
                return True
        elif not batch:
            self.held_since = self.held_head = None
        elif not self._holds(batch, self._prefill_s(len(batch), tokens), runnable, now):
            launches.append(self._prefill(batch, tokens, held_s, now))
            return True
        if not runnable:
            return False
        most = self.shape.decode_rows[-1]
        if self.policy.admission == "deadline":
            codec_s, step_s = self._urgent_s(self.shape.frame_buckets[-1]), self._step_s(most)
            ranked = sorted(runnable, key=lambda t: (self._slack(t, now, step_s, codec_s), t.order))
        else:
            ranked = sorted(runnable, key=lambda t: t.order)
        talks = sorted(ranked[:most], key=lambda t: t.slot)
        rows = _bucket(self.shape.decode_rows, len(talks))
        steps = np.array([t.launched for t in talks], np.int32)
        launches.append(self._launch(Lane.LM, Stage.DECODE, rows, 0, talks, steps=steps))
        for talk in talks:
            talk.launched += 1
        return True

    def _prefill(self, batch: list[Talk], tokens: int, held_s: float, now: float) -> Launch:
        for talk in batch:
            ramp = self._ramp(talk.arrival, self.running)
            talk.sizes = self.shape.ramps[ramp]
            talk.slot = self.free_slots.pop()
            talk.state = "running"
            talk.launched = 1
            talk.due = talk.deadline if talk.timed else now + PATIENCE_S
        rows = _bucket(self.shape.prefill_rows, len(batch))
        steps = np.zeros(len(batch), np.int32)
        lane, stage = Lane.LM, Stage.PREFILL
        return self._launch(lane, stage, rows, tokens, batch, steps=steps, held_s=held_s)

    def _launch(
        self, lane: Lane, stage: Stage, rows: int, units: int, talks: list[Talk], **arrays: Any
    ) -> Launch:
        for talk in talks:
            talk.held += 1
        requests = np.array([t.arrival.request for t in talks], np.int32)
        slots = np.array([t.slot for t in talks], np.int32)
        launch = Launch(self.number, lane, stage, rows, units, requests, slots, **arrays)
        self.number += 1
        self.in_flight.append(launch)
        return launch

    # What has run.

    def finish(self, done: Done, now: float) -> Outcome:
        launch = done.launch
        self.in_flight.remove(launch)
        if done.failed is None:
            self.estimates.record(launch, done.run_s)
        talks = [self._by_id(request) for request in launch.requests.tolist()]
        bad = done.failed.tolist() if done.failed is not None else [False] * len(talks)
        for talk in talks:
            talk.held -= 1
        outcome = Outcome()
        if launch.stage is Stage.ENCODE:
            self._encoded(launch, bad[0])
        elif launch.stage is Stage.CODEC:
            outcome = self._decoded(talks, bad, done, now)
        else:
            self._stepped(talks, bad, done, now, outcome)
        for talk in talks:
            self._let_go(talk)
        return outcome

    def _encoded(self, launch: Launch, bad: bool) -> None:
        number = int(launch.slots[0])
        self.clips[number].encoded = not bad
        waiting = [t for t in self._queue() if t.needs_clip and t.arrival.clip == number]
        for talk in waiting:
            talk.needs_clip = False
            if bad:
                self._over(talk, "failed")

    def _decoded(self, talks: list[Talk], bad: list[bool], done: Done, now: float) -> Outcome:
        deliver, final = [], []
        for row, talk in enumerate(talks):
            talk.decoding = False
            good = talk.state == "running" and not bad[row]
            if talk.state == "running" and bad[row]:
                talk.state = "failed"
            if good and done.samples is not None:
                self._deliver(talk, int(done.samples[row]), now)
            deliver.append(good)
            final.append(good and talk.ended and talk.first >= talk.frames)
            if final[-1]:
                talk.state = "finished"
        return Outcome(np.array(deliver), np.array(final))

    def _deliver(self, talk: Talk, samples: int, now: float) -> None:
        seconds = samples / (self.shape.sample_rate_hz * talk.arrival.speed)
        talk.made += seconds
        if samples:
            talk.play_end = max(talk.play_end, now) + seconds
            talk.sent = True
        if not talk.timed:
            talk.set_due(now + PATIENCE_S)
        else:
            talk.set_due(talk.play_end if talk.sent else talk.due)

    def _stepped(
        self, talks: list[Talk], bad: list[bool], done: Done, now: float, outcome: Outcome
    ) -> None:
        if done.launch.stage is Stage.DECODE:
            if self.last_step is not None:
                self.turn.add(now - self.last_step)
            self.last_step = now
        for row, talk in enumerate(talks):
            talk.accepted += 1
            if talk.state == "running" and bad[row]:
                talk.state = "failed"
            if talk.state != "running" or talk.ended:
                continue
            assert done.frames is not None and done.ended is not None
            talk.frames = int(done.frames[row])
            if not done.ended[row]:
                continue
            talk.ended = True
            self.used += SETTLE * (talk.accepted / talk.arrival.max_steps - self.used)
            if talk.first >= talk.frames and not talk.decoding:
                talk.state = "finished"
                outcome.finished.append(talk.arrival.request)

    def _over(self, talk: Talk, state: str) -> None:
        talk.state = state
        self._let_go(talk)

    def _let_go(self, talk: Talk) -> None:
        if talk.state in ("waiting", "running") or talk.held or talk not in self.talks:
            return
        self.talks.remove(talk)
        if all(t.arrival.clip != talk.arrival.clip for t in self.talks):
            self.clips.pop(talk.arrival.clip, None)
        if talk.slot >= 0:
            self.free_slots.append(talk.slot)
        self.gone.append(Released(talk.arrival.request, talk.slot, talk.state))

    # Who there is.

    def _by_id(self, request: int) -> Talk:
        return next(t for t in self.talks if t.arrival.request == request)

    def _find(self, request: int) -> Talk | None:
        known = [t for t in self.talks if t.arrival.request == request]
        return known[0] if known and known[0].state in ("waiting", "running") else None

    def _live(self) -> list[Talk]:
        return sorted((t for t in self.talks if t.state == "running"), key=lambda t: t.slot)

    def _queue(self) -> list[Talk]:
        waiting = [t for t in self.talks if t.state == "waiting"]
        by_deadline = self.policy.admission == "deadline"
        return sorted(waiting, key=lambda t: (t.deadline if by_deadline else 0.0, t.order))

    def _free(self, lane: Lane) -> bool:
        if not self.policy.overlap:
            return not self.in_flight
        most = self.policy.lm_in_flight if lane is Lane.LM else 1
        return sum(launch.lane is lane for launch in self.in_flight) < most

    def _fits(self, before: list[Talk], arrival: Arrival) -> bool:
        if len(before) >= len(self.free_slots):
            return False
        wanted = [t.arrival.pages for t in before] + [arrival.pages]
        free = self.pages_free
        if any(sum(w[i] for w in wanted) > n for i, n in enumerate(free)):
            return False
        new = {t.arrival.clip: self.clips[t.arrival.clip] for t in before if t.needs_clip}
        own = Clip(arrival.clip_s, arrival.clip_pages, launched=arrival.clip_s == 0)
        new[arrival.clip] = own = self.clips.get(arrival.clip, own)
        return own.launched or self._has_room([c for c in new.values() if not c.launched])

    def _has_room(self, clips: list[Clip]) -> bool:
        """Whether these clips can be placed beside those that are."""
        all_ = clips + [clip for clip in self.clips.values() if clip.launched]
        most = self.shape.clip_pages
        fits = all(sum(c.pages[i] for c in all_) <= n for i, n in enumerate(most))
        return fits and len(all_) <= self.shape.clips

    def _clip(self) -> Talk | None:
        for talk in self._queue():
            if talk.needs_clip:
                clip = self.clips[talk.arrival.clip]
                if not clip.launched:
                    return talk if self._has_room([clip]) else None
            elif self._fits([], talk.arrival):
                return None
        return None

    def _batch(self) -> tuple[list[Talk], int]:
        batch: list[Talk] = []
        tokens = 0
        for talk in self._queue():
            if talk.needs_clip or talk.allowed < 1:
                continue
            if not self._fits(batch, talk.arrival) or len(batch) == self._prefill_rows():
                break
            bucket = _bucket(self.shape.prefill_tokens, talk.arrival.prompt_rows)
            if not batch:
                tokens = bucket
            if bucket <= tokens:
                batch.append(talk)
        return batch, tokens

    def _runnable(self, now: float) -> list[Talk]:
        return [t for t in self._live() if self._can_step(t) and self._step_at(t) <= now]

    def _can_step(self, talk: Talk) -> bool:
        if talk.ended or talk.launched >= self._cap(talk):
            return False
        window = max(talk.arrival.window_s, self._least_ahead(talk))
        limit = (talk.taken + window) / self._frame_s(talk)
        if not math.isinf(limit) and talk.frames >= int(limit):
            return False
        return self._undecoded(talk) < max(talk.arrival.max_ahead_s, self._least_ahead(talk))

    def _step_at(self, talk: Talk) -> float:
        most = max(talk.arrival.max_ahead_s, self._least_ahead(talk))
        return talk.play_end + self._undecoded(talk) - most

    def _undecoded(self, talk: Talk) -> float:
        return talk.frames * self._frame_s(talk) - talk.made

    def _least_ahead(self, talk: Talk) -> float:
        return 2 * ((max(talk.sizes) + self.shape.ahead_frames) * self._frame_s(talk))

    def _cap(self, talk: Talk) -> int:
        return min(talk.arrival.max_steps, talk.allowed)

    def _frame_s(self, talk: Talk) -> float:
        return self.shape.frame_s / talk.arrival.speed

    def _need(self, talk: Talk) -> int:
        if talk.ended:
            return talk.first + 1
        return talk.first + talk.size(talk.chunk) + self.shape.ahead_frames

    def _chunk(self, talk: Talk) -> tuple[int, bool]:
        left = talk.frames - talk.first
        frames = min(talk.size(talk.chunk), left)
        return frames, talk.ended and frames == left

    def _is_urgent(self, talk: Talk, now: float) -> bool:
        near = talk.due - self.policy.urgent_slack_s <= now
        return talk.timed and (near or not talk.sent)

    def _cut(self, lane: Lane, talks: list[Talk]) -> tuple[list[Talk], int]:
        rows = self.policy.urgent_rows if lane is Lane.URGENT else self.policy.background_rows
        units = _bucket(self.shape.frame_buckets, self._chunk(talks[0])[0])
        fitting = []
        for talk in talks:
            frames, last = self._chunk(talk)
            padded = last or self.shape.padded_chunks
            if frames == units or (padded and frames <= units):
                fitting.append(talk)
        return fitting[: min(rows, self.shape.codec_rows[-1])], units

    def _worthwhile(self, lane: Lane, talks: list[Talk], units: int) -> list[Talk]:
        sizes = self.shape.codec_rows
        padded = self.estimates.seconds(lane, Stage.CODEC, _bucket(sizes, len(talks)), units)
        fewer = max((size for size in sizes if size <= len(talks)), default=0)
        if not fewer:
            return talks
        filled = self.estimates.seconds(lane, Stage.CODEC, fewer, units)
        return talks[:fewer] if filled * len(talks) < padded * fewer else talks

    def _start_by(self, lane: Lane, talks: list[Talk], step_s: float) -> float:
        batch, units = self._cut(lane, talks)
        rows = _bucket(self.shape.codec_rows, len(batch))
        run_s = self.estimates.seconds(lane, Stage.CODEC, rows, units)
        return talks[0].due - self.policy.urgent_slack_s - run_s - step_s

    def _wake(self, calm: list[Talk], now: float, step_s: float) -> float:
        if not self.policy.overlap and self.in_flight:
            return math.inf
        times = [math.inf]
        if self.hold_until is not None:
            times.append(self.hold_until)
        if self._free(Lane.LM):
            later = [self._step_at(t) for t in self._live() if self._can_step(t)]
            times += [at for at in later if at > now]
        single = Lane.BACKGROUND if self.policy.background_lane else Lane.URGENT
        if calm and self._free(single):
            times.append(self._start_by(single, calm, step_s))
        elif self.policy.urgent_lane and self.policy.background_lane and self._free(Lane.URGENT):
            times += [t.due - self.policy.urgent_slack_s for t in calm if t.timed]
        return min(times)

    # Estimates.

    def _prefill_rows(self) -> int:
        return min(self.policy.prefill_rows, self.shape.prefill_rows[-1])

    def _holds(self, batch: list[Talk], run_s: float, runnable: list[Talk], now: float) -> bool:
        since = now if self.held_since is None else self.held_since
        until = now
        if self.policy.admission == "deadline" and runnable:
            codec_s = self._urgent_s(self.shape.frame_buckets[-1])
            step_s = self._step_s(self.running)
            slacks = [
                self._slack(t, now, step_s, codec_s)
                for t in runnable
                if t.timed and t.sent and self._need(t) > t.frames
            ]
            if min(slacks, default=math.inf) < run_s:
                until = since + self.policy.prefill_defer_s
            elif 0 < len(batch) < self._prefill_rows():
                arrival = batch[0].arrival
                if self.held_head is not batch[0]:
                    self.held_head = batch[0]
                    start = self._start_s(arrival, self.running)
                    self.held_spare = batch[0].deadline - since - start
                spare = self.held_spare
                most = self.policy.prefill_defer_s * self._crowding(self.running + 1)
                until = since + min(most, spare / 2)
        held = now < until
        self.held_since = since if held else None
        self.held_head = self.held_head if held else None
        self.hold_until = until if held else None
        return held

    def _slack(self, talk: Talk, now: float, step_s: float, codec_s: float) -> float:
        steps = (self._need(talk) - talk.frames) * self.shape.steps_per_frame
        steps = max(steps - (talk.launched - talk.accepted), 0)
        return talk.due - now - steps * step_s - codec_s

    def _crowding(self, running: int) -> float:
        return min(running / self.shape.slots, 1.0) ** 2

    def _refusal(self, arrival: Arrival, now: float) -> str:
        if self.draining:
            return "draining"
        longest = self.shape.encode_seconds[-1] if self.shape.encode_seconds else 0
        if (
            any(n > m for n, m in zip(arrival.pages, self.shape.pages, strict=True))
            or arrival.prompt_rows > self.shape.prefill_tokens[-1]
            or arrival.clip_s > longest
            or any(n > m for n, m in zip(arrival.clip_pages, self.shape.clip_pages, strict=True))
        ):
            return "out_of_memory"
        if self.waiting - len(self.free_slots) >= self.policy.max_waiting:
            return "overloaded"
        if arrival.ttfa_s is None or not self.policy.refuse or self.running + self.waiting == 0:
            return ""
        streams = min(self.running + self.waiting + 1, self.shape.slots)
        frame_s = self.shape.frame_s / arrival.speed
        if self._step_s(streams) * self.shape.steps_per_frame > frame_s:
            return "overloaded"
        rows, batch_s = self._background(streams)
        if batch_s * max(streams / rows, 1.0) > self.shape.frame_buckets[-1] * frame_s:
            return "overloaded"
        deadline = arrival.arrival_s + arrival.ttfa_s
        late = self._first_audio_s(arrival, deadline) - (deadline - now)
        return "overloaded" if late > 0 else ""

    def _first_audio_s(self, arrival: Arrival, deadline: float) -> float:
        ahead = self._queue()
        if self.policy.admission == "deadline":
            ahead = [t for t in ahead if t.deadline <= deadline]
        then = min(self.running + len(ahead), self.shape.slots - 1)
        wait = 0.0
        if self.policy.admission == "deadline":
            wait = self.policy.prefill_defer_s * self._crowding(then + 1)
        if not self._fits(ahead, arrival):
            wait += self._release_s(max(1, len(ahead) + 1 - len(self.free_slots)))
        most = self.shape.prefill_rows[-1]
        batches, rows = divmod(len(ahead), most)
        tokens = max([arrival.prompt_rows] + [t.arrival.prompt_rows for t in ahead])
        wait += batches * self._prefill_s(most, tokens)
        wait += self._prefill_s(rows + 1, tokens) - self._prefill_s(1, arrival.prompt_rows)
        return wait + self._start_s(arrival, then)

    def _release_s(self, count: int) -> float:
        live = self._live()
        if not live or count < 1:
            return 0.0
        left = sorted(
            0.0 if t.ended else max(t.arrival.max_steps * self.used - t.launched, 0.0) for t in live
        )
        rounds, index = divmod(count - 1, len(live))
        life = sum(t.arrival.max_steps for t in live) / len(live) * self.used
        steps = left[index] + rounds * life
        batch, batch_s = self._background(self.running)
        chunks = sum(t.frames >= self._need(t) for t in live) + count
        return steps * self._turn_s(self.running) + (chunks / batch + 1) * batch_s

    def _step_s(self, running: int) -> float:
        largest = self.shape.decode_rows[-1]
        rows = _bucket(self.shape.decode_rows, min(max(running, 1), largest))
        step_s = self.estimates.seconds(Lane.LM, Stage.DECODE, rows, 0)
        return step_s * max(1.0, running / largest)

    def _turn_s(self, running: int) -> float:
        turn_s = self.turn.value * max(1.0, running / self.shape.decode_rows[-1])
        return max(self._step_s(running), turn_s)

    def _prefill_s(self, rows: int, tokens: int) -> float:
        return self.estimates.seconds(
            Lane.LM,
            Stage.PREFILL,
            _bucket(self.shape.prefill_rows, rows),
            _bucket(self.shape.prefill_tokens, tokens),
        )

    def _urgent_s(self, frames: int) -> float:
        lane = Lane.URGENT if self.policy.urgent_lane else Lane.BACKGROUND
        units = _bucket(self.shape.frame_buckets, frames)
        return self.estimates.seconds(lane, Stage.CODEC, 1, units)

    def _chunk_s(self, frames: int, running: int, ahead: int = 0) -> float:
        steps = (frames + ahead) * self.shape.steps_per_frame
        late = self._turn_s(running)
        usual = self.turn.mean * max(1.0, running / self.shape.decode_rows[-1])
        usual = min(max(self._step_s(running), usual), late)
        return steps * usual + math.sqrt(steps) * (late - usual) + 2 * self._urgent_s(frames)

    def _start_s(self, arrival: Arrival, running: int) -> float:
        first = self.shape.ramps[self._ramp(arrival, running)][0]
        chunk_s = self._chunk_s(first, running, self.shape.ahead_frames)
        return self._step_s(running) + self._prefill_s(1, arrival.prompt_rows) + chunk_s

    def _background(self, streams: int) -> tuple[int, float]:
        on = self.policy.background_lane
        lane = Lane.BACKGROUND if on else Lane.URGENT
        wanted = self.policy.background_rows if on else self.policy.urgent_rows
        most = min(wanted, max(streams, 1), self.shape.codec_rows[-1])
        rows = _bucket(self.shape.codec_rows, most)
        frames = self.shape.frame_buckets[-1]
        return rows, self.estimates.seconds(lane, Stage.CODEC, rows, frames)

    def _ramp(self, arrival: Arrival, running: int) -> int:
        ramps = self.shape.ramps
        if arrival.chunk_frames is not None:
            hint = arrival.chunk_frames
            fitting = [i for i in range(len(ramps)) if ramps[i][0] <= hint]
            return max(fitting, key=lambda i: ramps[i][0]) if fitting else 0
        if self.policy.ramp != "load":
            return min(self.policy.ramp, len(ramps) - 1)
        if arrival.ttfa_s is None:
            return len(ramps) - 1
        turn_s = self._turn_s(running + 1) * self.shape.steps_per_frame
        batch, batch_s = self._background(running + 1)
        chunks = (running + 1) / self.shape.frame_buckets[-1]
        share = chunks / batch * batch_s / turn_s if turn_s else 0.0
        index = min(max(int(len(ramps) * (2 * share - 1)), 0), len(ramps) - 1)
        while index > 0 and self._chunk_s(ramps[index][0], running + 1) > arrival.ttfa_s / 2:
            index -= 1
        while index < len(ramps) - 1 and not self._lasts(ramps[index], arrival.speed, running):
            index += 1
        return index

    def _lasts(self, ramp: tuple[int, ...], speed: float, running: int) -> bool:
        slack = 0.0
        for now, after in zip(ramp, ramp[1:], strict=False):  # noqa: RUF007 - as plain as it gets
            slack += now * (self.shape.frame_s / speed) - self._chunk_s(after, running + 1)
            if slack < 0:
                return False
        return True


def _bucket(sizes: tuple[int, ...], number: float) -> int:
    return sizes[bisect_left(sizes, number)]
