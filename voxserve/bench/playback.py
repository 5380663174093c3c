"""What a listener would have heard: a player that starts at the first byte and pauses when the
next audio has not arrived."""

from collections.abc import Iterable
from dataclasses import dataclass

STALL_S = 0.010
"""Pauses of a request that add up to less are not heard, and not counted as a stall."""


@dataclass(frozen=True, slots=True)
class Playback:
    """stall_s: all pauses together. stops: pauses longer than zero."""

    stall_s: float
    stops: int

    @property
    def stalled(self) -> bool:
        return self.stall_s >= STALL_S


def replay(arrivals: Iterable[tuple[float, float]]) -> Playback:
    """arrivals: (seconds, seconds of audio) of each piece, in order."""
    played_out_s: float | None = None
    stall_s, stops = 0.0, 0
    for at_s, audio_s in arrivals:
        if played_out_s is None:
            played_out_s = at_s
        elif at_s > played_out_s:
            stall_s += at_s - played_out_s
            stops += 1
            played_out_s = at_s
        played_out_s += audio_s
    return Playback(stall_s, stops)
