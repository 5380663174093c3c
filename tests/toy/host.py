"""The toy's host half: every letter is a note, everything else a rest. No torch."""

import numpy as np

from voxserve.errors import InvalidRequestError
from voxserve.plugin import LiveText, ModelInfo, ModelSpec, StateTensor, Voice
from voxserve.requests import Int32Array, Prompt, SpeechRequest
from voxserve.steps import EosSteps

REST, END = 0, 27
MOST_NOTES = 500


class ToyHost:
    info = ModelInfo(
        name="toy",
        voices=(Voice("beep"),),
        default_voice="beep",
        languages=("auto",),
        ranges={},
        text_streaming=True,
        max_input_chars=MOST_NOTES,
    )
    spec = ModelSpec(
        sample_rate_hz=16_000,
        samples_per_frame=800,
        codebooks=1,
        columns=((0, 0),),
        frame_buckets=(1, 5),
        ramps=((1, 5), (5,)),
        prompt_columns=1,
        inject_columns=1,
        pad_row=(END,),
        max_context=MOST_NOTES + 1,
        prefill_tokens=(1,),
        state=(StateTensor("phase", (), "float64"),),
    )

    def prompt(self, request: SpeechRequest) -> Prompt:
        return self.make_prompt(request, np.append(notes(request.text), [[END]], axis=0), True)

    def live_text(self, request: SpeechRequest) -> LiveText:
        return ToyText(self, request)

    def steps(self, slots: int) -> EosSteps:
        return EosSteps(slots, END, self.spec.samples_per_frame)

    def make_prompt(self, request: SpeechRequest, rows: Int32Array, ended: bool) -> Prompt:
        """The first note starts the speech, each further row belongs to one step."""
        if len(rows) > MOST_NOTES + 1:
            said = f"text has {len(rows) - 1} characters, at most {MOST_NOTES}"
            raise InvalidRequestError(said, param="input", code="input_too_long")
        return Prompt(
            rows=rows[:1],
            inject=rows[1:],
            text_open=not ended,
            max_steps=len(rows) if ended else MOST_NOTES + 1,
            sampling=np.zeros(len(self.spec.sampling), np.float32),
            seed=request.seed,
            input_tokens=len(rows) - ended,
        )


class ToyText:
    """Text in pieces: a character never changes those before it, so nothing is held back."""

    def __init__(self, host: ToyHost, request: SpeechRequest) -> None:
        self._host = host
        self._request = request

    def append(self, text: str) -> Int32Array:
        return notes(text)

    def end(self) -> Int32Array:
        return np.array([[END]], np.int32)

    def prompt(self, rows: Int32Array, ended: bool) -> Prompt:
        return self._host.make_prompt(self._request, rows, ended)


def notes(text: str) -> Int32Array:
    letters = [ord(c) - ord("a") + 1 if "a" <= c <= "z" else REST for c in text.lower()]
    return np.array(letters, np.int32).reshape(-1, 1)
