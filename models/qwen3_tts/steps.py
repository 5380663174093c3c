"""When a request is over: the end code, a limit, or one of the guards against running away.

The published models are known never to say their end code in a few of a thousand requests and then
to go on, mostly as near-silence.
"""

from voxserve import steps

SPARE_FRAMES = 14
FRAMES_PER_TOKEN = 12
LEAST_CAP_FRAMES = 48
WINDOW_FRAMES = 100
CHECK_EVERY = 20


def frame_cap(tokens: int) -> int:
    """Most frames that a text of so many tokens may take: about three times a calm reading."""
    return max(LEAST_CAP_FRAMES, SPARE_FRAMES + FRAMES_PER_TOKEN * tokens)


class GuardedSteps(steps.GuardedSteps):
    """`StepLogic` of Qwen3-TTS. auto: the column of `Prompt.sampling` named AUTO_LENGTH."""

    def __init__(self, slots: int, eos: int, samples_per_frame: int, auto: int) -> None:
        super().__init__(
            slots, eos, samples_per_frame, auto, window=WINDOW_FRAMES, check_every=CHECK_EVERY
        )
