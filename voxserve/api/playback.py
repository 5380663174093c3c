"""The server's model of a listener: playback begins with the first byte and never waits before."""

from dataclasses import dataclass

STALL_S = 0.010
"""Pauses that sum up to less are inaudible and no stall."""


@dataclass(slots=True)
class Playback:
    """stalls: how often the player ran dry. stalled_s: for how long in all. audio_s: written.
    ends_at: when all of that will have been played; None before any of it."""

    audio_s: float = 0.0
    stalls: int = 0
    stalled_s: float = 0.0
    ends_at: float | None = None

    def wrote(self, seconds: float, now: float, *, excused: bool = False) -> None:
        """Audio went out. excused: the gap before it was the client's own (its text was late)."""
        if self.ends_at is None:
            self.ends_at = now
        gap = now - self.ends_at
        if gap > 0:
            if not excused:
                self.stalls += 1
                self.stalled_s += gap
            self.ends_at = now
        self.ends_at += seconds
        self.audio_s += seconds

    @property
    def stalled(self) -> bool:
        return self.stalled_s >= STALL_S
