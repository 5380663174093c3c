"""From a Submit message to an arrival for the scheduler: what can never run is refused here."""

from dataclasses import dataclass, field, replace

from voxserve.engine.clips import Clip, ClipRows
from voxserve.engine.memory import Sizes
from voxserve.errors import InvalidRequestError
from voxserve.plugin import ModelSpec
from voxserve.requests import Float32Array, Int32Array, Prompt
from voxserve.scheduler.launches import ALL_STEPS, NO_CLIP, Arrival
from voxserve.wire import Submit, unpack_prompt


@dataclass(slots=True)
class Request:
    """A request from its Submit until nothing holds it any more.

    text: injected rows that wait for a slot; injected: all rows that have come so far.
    clip: what it is held with. pages: page ids of its own, by pool. over: the message that ends it
    has been sent, and nothing more may follow.
    """

    number: int
    prompt: Prompt
    arrival_s: float
    needs: tuple[int, ...]
    text: list[Int32Array]
    injected: int
    clip: Clip | None = None
    slot: int = -1
    pages: dict[str, list[int]] = field(default_factory=dict)
    over: bool = False


class Intake:
    """Checks prompts against the model's shapes and the memory at hand.

    audio: the reference clips that prompts may name, by key.
    """

    def __init__(self, spec: ModelSpec, sizes: Sizes, clips: ClipRows) -> None:
        self._spec = spec
        self._sizes = sizes
        self._clips = clips
        self.audio: dict[str, Float32Array] = {}

    def accept(self, submit: Submit) -> tuple[Request, Arrival]:
        """The request, holding its clip if it has one.

        Raises InvalidRequestError when it can never run.
        """
        prompt = self._within_context(unpack_prompt(submit.prompt, self.audio))
        self._check(prompt)
        needs = self._needs(prompt)
        request = Request(
            number=submit.request,
            prompt=prompt,
            arrival_s=submit.arrival_s,
            needs=needs,
            text=[prompt.inject],
            injected=len(prompt.inject),
        )
        clip_s, clip_needs = 0.0, {}
        if prompt.clip is not None:
            samples = len(prompt.clip.audio)
            request.clip = self._clips.hold(prompt.clip.key, self._clip_needs(samples))
            clip_needs = dict(request.clip.needs)
            if not request.clip.encoded:
                clip_s = samples / (self._spec.clip_rate_hz or 1)
        return request, Arrival(
            request=submit.request,
            arrival_s=submit.arrival_s,
            ttfa_s=submit.ttfa_s,
            prompt_rows=len(prompt.rows),
            max_steps=prompt.max_steps,
            pages=needs,
            steps_allowed=1 + request.injected if prompt.text_open else ALL_STEPS,
            clip=NO_CLIP if request.clip is None else request.clip.number,
            clip_s=clip_s,
            clip_pages=tuple(clip_needs.get(pool.name, 0) for pool in self._spec.pools),
            speed=submit.speed,
            max_ahead_s=float("inf") if submit.max_ahead_s is None else submit.max_ahead_s,
            window_s=submit.window_s,
            chunk_frames=submit.chunk_frames,
        )

    def _within_context(self, prompt: Prompt) -> Prompt:
        """Text that is still to come reserves the context there is, not the model's largest."""
        most = self._sizes.context - len(prompt.rows) + 1
        if not prompt.text_open or prompt.max_steps <= most or most < 1:
            return prompt
        return replace(prompt, max_steps=most)

    def _check(self, prompt: Prompt) -> None:
        spec, context = self._spec, self._sizes.context
        rows, columns = prompt.rows.shape
        longest = spec.prefill_tokens[-1]
        if not 1 <= rows <= longest:
            raise InvalidRequestError(
                f"prompt has {rows} positions, at most {longest}",
                param="input",
                code="input_too_long",
            )
        if prompt.max_steps < 1 or rows + prompt.max_steps - 1 > context:
            raise InvalidRequestError(
                f"prompt of {rows} positions and {prompt.max_steps} steps need a context of "
                f"{rows + prompt.max_steps - 1}, at most {context}",
                param="input",
                code="input_too_long",
            )
        expected = (spec.prompt_columns, spec.inject_columns, len(spec.sampling))
        found = (columns, prompt.inject.shape[1], len(prompt.sampling))
        if found != expected:
            raise InvalidRequestError(
                f"prompt columns, text columns and sampling values are {found}, expected {expected}"
            )
        if not -(2**63) <= prompt.seed < 2**63:
            raise InvalidRequestError(
                f"seed is {prompt.seed}, expected a signed 64-bit integer", param="seed"
            )
        if prompt.clip is not None:
            self._check_clip(len(prompt.clip.audio))

    def _check_clip(self, samples: int) -> None:
        spec = self._spec
        if spec.clip_rate_hz is None or not spec.encode_seconds:
            raise InvalidRequestError(
                "the model takes no reference clip", param="ref_audio", code="unsupported_parameter"
            )
        seconds, longest = samples / spec.clip_rate_hz, spec.encode_seconds[-1]
        if not 0 < seconds <= longest:
            raise InvalidRequestError(
                f"reference clip has {seconds:.2f} s, at most {longest}",
                param="ref_audio",
                code="ref_audio_too_long",
            )

    def _needs(self, prompt: Prompt) -> tuple[int, ...]:
        needs = []
        for pool in self._spec.pools:
            need = -(-pool.need(len(prompt.rows), prompt.max_steps) // pool.units)
            own = self._sizes.table_pages[pool.name] - self._sizes.clip_table_pages.get(
                pool.name, 0
            )
            limit = min(own, self._sizes.pages[pool.name])
            if need > limit:
                raise InvalidRequestError(
                    f"request needs {need} pages of {pool.name}, at most {limit}",
                    param="input",
                    code="input_too_long",
                )
            needs.append(need)
        return tuple(needs)

    def _clip_needs(self, samples: int) -> dict[str, int]:
        """Pages that a clip holds, by pool."""
        pools = self._spec.pools
        return {p.name: p.clip_need(samples) // p.units for p in pools if p.clip_need}
