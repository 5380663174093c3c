"""Running requests as a struct of arrays indexed by slot, and the array operations on them.

A step of the LM or a batch of the codec moves all its rows with a fixed number of operations here;
nothing in this file loops over rows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxserve.scheduler.launches import BoolArray, Int8Array, Int32Array
from voxserve.scheduler.lifecycle import Request
from voxserve.scheduler.policy import Shape

FloatArray = NDArray[np.float64]
Slots = NDArray[Any]

NEVER = 2**31 - 1
"""More frames than there can be: the next chunk of a row that is over is never ready."""
PATIENCE_S = 5.0
"""Requests without deadlines get one all the same, this long after their last audio. It makes them
neither urgent nor late; it only bounds how long streams may go before them."""


class Rows:
    """State of the running requests; every array is [slots].

    launched, accepted: LM steps started and finished. cap: steps that may be started, 0 for none.
    max_steps: the request's own limit. held: launches in flight with this row. frames: decodable
    so far. frame_limit: frames at which the client's window is full. live: the request is not over.
    generating: its LM part neither. ended: its LM part is, and `frames` is final. decoding: a chunk
    is in flight.
    chunk, first, size, need, due: the next chunk that was not launched yet: its index, first frame,
    planned frames, the `frames` from which it is ready, its deadline. timed: deadlines count.
    sent: audio was delivered. play_end: when the audio delivered so far has been played out.
    made_s: output seconds of it. frame_s: output seconds of a frame. window_s, max_ahead_s: as in
    `Arrival`, raised to two chunks so that they can slow a request but never stop it. restart,
    restart_chunk: the deadline that the chunk with late text got, and that chunk's index.
    """

    def __init__(self, shape: Shape) -> None:
        n = shape.slots
        self.request = np.full(n, -1, np.int32)
        self.order = np.zeros(n, np.int64)
        self.launched = np.zeros(n, np.int32)
        self.accepted = np.zeros(n, np.int32)
        self.cap = np.zeros(n, np.int32)
        self.max_steps = np.zeros(n, np.int32)
        self.held = np.zeros(n, np.int32)
        self.frames = np.zeros(n, np.int32)
        self.frame_limit = np.zeros(n, np.int32)
        self.live = np.zeros(n, np.bool_)
        self.generating = np.zeros(n, np.bool_)
        self.ended = np.zeros(n, np.bool_)
        self.decoding = np.zeros(n, np.bool_)
        self.ramp = np.zeros(n, np.int32)
        self.chunk = np.zeros(n, np.int32)
        self.first = np.zeros(n, np.int32)
        self.size = np.zeros(n, np.int32)
        self.need = np.full(n, NEVER, np.int32)
        self.due = np.zeros(n, np.float64)
        self.timed = np.zeros(n, np.bool_)
        self.sent = np.zeros(n, np.bool_)
        self.play_end = np.zeros(n, np.float64)
        self.made_s = np.zeros(n, np.float64)
        self.frame_s = np.zeros(n, np.float64)
        self.speed = np.ones(n, np.float64)
        self.window_s = np.zeros(n, np.float64)
        self.max_ahead_s = np.zeros(n, np.float64)
        self.restart = np.zeros(n, np.float64)
        self.restart_chunk = np.full(n, -1, np.int32)
        self._ahead_frames = shape.ahead_frames
        self._steps_per_frame = shape.steps_per_frame
        self._sample_rate_hz = shape.sample_rate_hz
        self._shape = shape
        self._limited = 0
        self._restarted = False
        longest = max(len(ramp) for ramp in shape.ramps)
        padded = [ramp + ramp[-1:] * (longest - len(ramp)) for ramp in shape.ramps]
        self._sizes = np.array(padded, np.int32)

    def admit(self, request: Request, slot: int, ramp: int, now: float) -> None:
        """Give a request its slot; its prefill is about to be launched."""
        arrival = request.arrival
        self.request[slot] = arrival.request
        self.order[slot] = request.order
        self.launched[slot] = self.accepted[slot] = self.held[slot] = self.frames[slot] = 0
        self.max_steps[slot] = arrival.max_steps
        self.cap[slot] = min(arrival.max_steps, request.allowed)
        self.live[slot] = self.generating[slot] = True
        self.ended[slot] = self.decoding[slot] = self.sent[slot] = False
        self.ramp[slot] = ramp
        self.chunk[slot] = self.first[slot] = 0
        self.size[slot] = size = int(self._sizes[ramp, 0])
        self.need[slot] = size + self._ahead_frames
        self.timed[slot] = arrival.ttfa_s is not None
        self.due[slot] = now + PATIENCE_S if arrival.ttfa_s is None else request.deadline_s
        self.play_end[slot] = -np.inf
        self.made_s[slot] = 0.0
        self.speed[slot] = arrival.speed
        self.frame_s[slot] = frame_s = self._shape.frame_s / arrival.speed
        largest_s = (int(self._sizes[ramp].max()) + self._ahead_frames) * frame_s
        self.max_ahead_s[slot] = max_ahead_s = max(arrival.max_ahead_s, 2 * largest_s)
        self._limited += max_ahead_s < np.inf
        self.restart_chunk[slot] = -1
        self.window_s[slot] = max(arrival.window_s, 2 * largest_s)
        self.take(slot, 0.0)

    def take(self, slot: int, taken_s: float) -> None:
        """The client's socket has taken so many output seconds."""
        frames = (taken_s + self.window_s[slot]) / self.frame_s[slot]
        self.frame_limit[slot] = int(frames) if frames < NEVER else NEVER

    def play(self, slot: int, played_s: float, now: float) -> None:
        """The client has played so many output seconds; deadlines move by what that corrects."""
        if not self.sent[slot]:
            return
        end = now + max(float(self.made_s[slot]) - played_s, 0.0)
        moved = end - self.play_end[slot]
        self.play_end[slot] = end
        if self.timed[slot]:
            self._set_due(np.array([slot]), self.due[slot : slot + 1] + moved)

    def close(self, slot: int) -> None:
        """The request is over: launch nothing more for it."""
        self._limited -= bool(self.max_ahead_s[slot] < np.inf)
        self.live[slot] = self.generating[slot] = False
        self.cap[slot] = 0
        self.need[slot] = NEVER

    def runnable(self, now: float) -> tuple[Slots, float]:
        """Slots that a decode step can advance, and when the next throttled one joins them."""
        slots = ((self.launched < self.cap) & (self.frames < self.frame_limit)).nonzero()[0]
        if not self._limited:
            return slots, np.inf
        limits = self.max_ahead_s[slots]
        undecoded_s = self.frames[slots] * self.frame_s[slots] - self.made_s[slots]
        free_at = self.play_end[slots] + undecoded_s - limits
        blocked = undecoded_s >= limits
        waits = ~blocked & (free_at > now)
        wake = float(free_at[waits].min()) if waits.any() else np.inf
        return slots[~blocked & ~waits], wake

    def step(self, slots: Slots) -> Int32Array:
        """Start one LM step for `slots`; returns which step that is, [n]."""
        steps = self.launched[slots]
        self.launched[slots] = steps + 1
        self.held[slots] += 1
        return steps

    def land(self, slots: Slots) -> None:
        """Finish a codec launch for `slots`."""
        self.held[slots] -= 1
        self.decoding[slots] = False

    def accept(self, slots: Slots, frames: Int32Array | None, ended: Int8Array | None) -> Slots:
        """Finish one LM step for `slots`; returns the slots whose LM part ended with it."""
        self.held[slots] -= 1
        self.accepted[slots] += 1
        if frames is None or ended is None:
            return slots[:0]
        going = self.generating[slots]
        self.frames[slots] = np.where(going, frames, self.frames[slots])
        over: Slots = slots[going & (ended != 0)]
        if len(over):
            self.generating[over] = False
            self.ended[over] = True
            self.cap[over] = 0
            self.need[over] = self.first[over] + 1
        return over

    def slack(self, slots: Slots, now: float, step_s: float, codec_s: float) -> FloatArray:
        """[n] seconds to spare if generating and decoding the next chunk begins now."""
        steps = (self.need[slots] - self.frames[slots]) * self._steps_per_frame
        steps = np.maximum(steps - (self.launched[slots] - self.accepted[slots]), 0)
        return np.asarray(self.due[slots] - now - steps * step_s - codec_s)

    def ready(self) -> Slots:
        """Slots whose next chunk can be decoded, most urgent first."""
        slots = ((self.frames >= self.need) & ~self.decoding).nonzero()[0]
        if len(slots) < 2:
            return slots
        return slots[np.lexsort((self.order[slots], self.due[slots]))]

    def cut(self, slots: Slots) -> tuple[Int32Array, BoolArray]:
        """Frames of the next chunks of ready rows, and whether each is known to be the last."""
        left = self.frames[slots] - self.first[slots]
        frames = np.minimum(self.size[slots], left)
        return frames, self.ended[slots] & (frames == left)

    def decode(self, slots: Slots, frames: Int32Array) -> None:
        """Start the codec on the next chunks of `slots` and turn to the ones behind them."""
        self.held[slots] += 1
        self.decoding[slots] = True
        self.first[slots] = first = self.first[slots] + frames
        self.chunk[slots] = chunk = self.chunk[slots] + 1
        column = np.minimum(chunk, self._sizes.shape[1] - 1)
        self.size[slots] = size = self._sizes[self.ramp[slots], column]
        self.need[slots] = np.where(self.ended[slots], first + 1, first + size + self._ahead_frames)
        self._set_due(slots, self.due[slots] + frames * self.frame_s[slots])

    def deliver(self, slots: Slots, samples: Int32Array, now: float) -> None:
        """The audio of `slots` ([n] samples) goes out: move their playback and deadlines on."""
        seconds = samples / (self._sample_rate_hz * self.speed[slots])
        sounds = samples > 0
        self.made_s[slots] += seconds
        end = np.maximum(self.play_end[slots], now) + seconds
        self.play_end[slots] = np.where(sounds, end, self.play_end[slots])
        self.sent[slots] |= sounds
        due = np.where(self.sent[slots], self.play_end[slots], self.due[slots])
        self._set_due(slots, np.where(self.timed[slots], due, now + PATIENCE_S))

    def complete(self, slots: Slots) -> BoolArray:
        """[n] bool: every frame of the row has been decoded."""
        done = self.ended[slots] & (self.first[slots] >= self.frames[slots])
        return done & ~self.decoding[slots]

    def restart_clock(self, slot: int, deadline_s: float) -> None:
        """Late text is here: the first chunk that it fills is due at `deadline_s` at the earliest.

        Call it before the new text raises `cap`.
        """
        in_flight = int(self.launched[slot] - self.accepted[slot]) // self._steps_per_frame
        covered = int(self.frames[slot]) + in_flight
        chunk, need = int(self.chunk[slot]), int(self.need[slot])
        sizes = self._sizes[self.ramp[slot]]
        while need <= covered:
            chunk += 1
            need += int(sizes[min(chunk, len(sizes) - 1)])
        self._restarted = True
        self.restart[slot] = deadline_s
        self.restart_chunk[slot] = chunk
        if chunk == self.chunk[slot]:
            self._set_due(np.array([slot]), self.due[slot : slot + 1])

    def _set_due(self, slots: Slots, due: FloatArray) -> None:
        if not self._restarted:
            self.due[slots] = due
            return
        restarted = self.restart_chunk[slots] == self.chunk[slots]
        self.due[slots] = np.where(restarted, np.maximum(due, self.restart[slots]), due)
