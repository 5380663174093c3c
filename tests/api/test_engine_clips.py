"""A clip crosses to the engine once, and again only when the engine has it no more."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from voxserve import wire
from voxserve.api.engine_clips import EngineClips
from voxserve.requests import ReferenceClip

SAMPLES = {"a": 10, "b": 20, "c": 30, "d": 100}
MOST_BYTES = 4 * 60


class Engine:
    """What an engine does with the messages."""

    def __init__(self) -> None:
        self.audio: dict[str, bytes] = {}
        self.sent = 0

    def receive(self, message: wire.ToEngine) -> None:
        if isinstance(message, wire.KeepClip):
            self.sent += 1
            self.audio[message.key] = message.audio
        else:
            assert isinstance(message, wire.ForgetClip)
            del self.audio[message.key]


def clip(key: str) -> ReferenceClip:
    return ReferenceClip(key, np.full(SAMPLES[key], 0.5, np.float32))


@given(st.lists(st.sampled_from(tuple(SAMPLES))))
def test_the_engine_has_what_is_asked_for_and_no_more_than_it_may(keys: list[str]) -> None:
    engine = Engine()
    clips = EngineClips(engine.receive, MOST_BYTES)
    for key in keys:
        clips.hold(clip(key))
        assert engine.audio[key] == clip(key).audio.tobytes()
        held = sum(map(len, engine.audio.values()))
        assert held <= MOST_BYTES or list(engine.audio) == [key]


def test_what_was_not_used_for_longest_goes() -> None:
    engine = Engine()
    clips = EngineClips(engine.receive, MOST_BYTES)
    for key in ("a", "b", "a", "a", "c", "a", "c"):
        clips.hold(clip(key))
    assert engine.sent == 3 and set(engine.audio) == {"a", "b", "c"}
    clips.hold(clip("d"))
    assert set(engine.audio) == {"d"}
    clips.hold(clip("a"))
    assert engine.sent == 5
