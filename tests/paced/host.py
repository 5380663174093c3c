"""The host half of the paced model. No torch."""

import numpy as np

from voxserve.errors import InvalidRequestError
from voxserve.plugin import LiveText, ModelInfo, ModelSpec, StateTensor, Voice
from voxserve.requests import Int32Array, Prompt, SpeechRequest
from voxserve.steps import EosSteps

MOST_FRAMES = 1000
SOUND, END = 1, 0
NEVER = 10**9


class PacedHost:
    info = ModelInfo(
        name="paced",
        voices=(Voice("beep"),),
        default_voice="beep",
        languages=("auto",),
        ranges={},
        text_streaming=True,
        max_input_chars=MOST_FRAMES,
    )
    spec = ModelSpec(
        sample_rate_hz=24_000,
        samples_per_frame=1920,
        codebooks=1,
        columns=((0, 0),),
        frame_buckets=(1, 2, 3, 5, 10),
        ramps=((1, 1, 2, 3, 5, 10), (10,)),
        prompt_columns=1,
        inject_columns=1,
        pad_row=(END,),
        max_context=MOST_FRAMES + 1,
        prefill_tokens=(1,),
        state=(StateTensor("nothing", (), "float32"),),
    )

    def prompt(self, request: SpeechRequest) -> Prompt:
        return self.make_prompt(request, np.append(rows_of(request.text), [[END]], axis=0), True)

    def live_text(self, request: SpeechRequest) -> LiveText:
        return PacedText(self, request)

    def steps(self, slots: int) -> EosSteps:
        return EosSteps(slots, END, self.spec.samples_per_frame, repeat_guard=NEVER)

    def make_prompt(self, request: SpeechRequest, rows: Int32Array, ended: bool) -> Prompt:
        if len(rows) > MOST_FRAMES + 1:
            said = f"text has {len(rows) - 1} characters, at most {MOST_FRAMES}"
            raise InvalidRequestError(said, param="input", code="input_too_long")
        return Prompt(
            rows=rows[:1],
            inject=rows[1:],
            text_open=not ended,
            max_steps=len(rows) if ended else MOST_FRAMES + 1,
            sampling=np.zeros(len(self.spec.sampling), np.float32),
            seed=request.seed,
            input_tokens=len(rows) - ended,
        )


class PacedText:
    """Text in pieces: each character is a frame, whatever follows."""

    def __init__(self, host: PacedHost, request: SpeechRequest) -> None:
        self._host = host
        self._request = request

    def append(self, text: str) -> Int32Array:
        return rows_of(text)

    def end(self) -> Int32Array:
        return np.array([[END]], np.int32)

    def prompt(self, rows: Int32Array, ended: bool) -> Prompt:
        return self._host.make_prompt(self._request, rows, ended)


def rows_of(text: str) -> Int32Array:
    return np.full((len(text), 1), SOUND, np.int32)
