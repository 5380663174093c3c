"""Which reference clips an engine process holds, so that each crosses to it once."""

from collections import OrderedDict
from collections.abc import Callable

from voxserve import wire
from voxserve.requests import ReferenceClip

MOST_BYTES = 64 * 2**20
"""Of audio: 22 clips of 30 s at 24 kHz."""


class EngineClips:
    """One an engine process, whose memory of clips begins and ends with it.

    Messages arrive in the order in which they are sent, so what is held is known here without
    asking. The clip that was not used for longest goes first; requests that run keep theirs.
    """

    def __init__(self, send: Callable[[wire.ToEngine], None], most_bytes: int = MOST_BYTES) -> None:
        self._send = send
        self._most_bytes = most_bytes
        self._held: OrderedDict[str, int] = OrderedDict()

    def hold(self, clip: ReferenceClip) -> None:
        """Have the engine hold it before a prompt names it."""
        if clip.key not in self._held:
            self._held[clip.key] = clip.audio.nbytes
            self._send(wire.pack_clip(clip))
        self._held.move_to_end(clip.key)
        while len(self._held) > 1 and sum(self._held.values()) > self._most_bytes:
            key, _ = self._held.popitem(last=False)
            self._send(wire.ForgetClip(key))
