"""A stage that raises fails the requests of its launch, and nobody else."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tests.engine.harness import Api, engine, prompt, same_but_for_rounding
from voxserve.engine.loop import Loop
from voxserve.plugin import Inputs, Outputs, SpeechModel, State
from voxserve.requests import Prompt, ReferenceClip
from voxserve.wire import AppendText, Failed, Finished

BAD_SEED = 666
ONE_AT_A_TIME = {"prefill_rows": 1, "urgent_rows": 1, "background_rows": 1, "background_batch": 1}


class Faulty:
    """Tiny, but `stage` raises on rows of the request with BAD_SEED (encode: on a silent clip)."""

    def __init__(self, model: SpeechModel, stage: str) -> None:
        self._model = model
        self._stage = stage
        self._bad_slots: set[int] = set()

    def prefill(self, io: Inputs, state: State) -> Outputs:
        bad = io["seeds"] == BAD_SEED
        self._bad_slots -= set(io["slots"].tolist())
        self._bad_slots |= set(io["slots"][bad].tolist())
        self._check("prefill", bool(bad.any()))
        return self._model.prefill(io, state)

    def decode(self, io: Inputs, state: State) -> Outputs:
        late = bool((io["steps"] > 3).any())
        self._check("decode", late and not self._bad_slots.isdisjoint(io["slots"].tolist()))
        return self._model.decode(io, state)

    def codec(self, io: Inputs, state: State) -> Outputs:
        later = bool((io["first_frame"] > 0).any())
        self._check("codec", later and not self._bad_slots.isdisjoint(io["slots"].tolist()))
        return self._model.codec(io, state)

    def encode(self, io: Inputs, state: State) -> Outputs:
        self._check("encode", bool((io["lengths"] == 24_001).any()))
        return self._model.encode(io, state)

    def _check(self, stage: str, bad: bool) -> None:
        if stage == self._stage and bad:
            raise RuntimeError(f"{stage} was made to fail")


@contextmanager
def faulty(stage: str) -> Iterator[tuple[Api, Loop]]:
    with engine({"policy": ONE_AT_A_TIME}, wrap=lambda model: Faulty(model, stage)) as parts:
        yield parts


def held_back(made: Prompt) -> Prompt:
    """The same, with text still to come: it has no row in any decode step until then."""
    return Prompt(
        rows=made.rows,
        inject=made.inject[:0],
        text_open=True,
        max_steps=made.max_steps,
        sampling=made.sampling,
        seed=made.seed,
        input_tokens=made.input_tokens,
        ignore_eos=True,
    )


@pytest.mark.parametrize("stage", ["prefill", "decode", "codec"])
def test_a_failed_launch_fails_its_own_requests_alone(stage: str) -> None:
    neighbour = prompt(seed=2, steps=20)
    with faulty(stage) as (api, loop):
        undisturbed = api.say(neighbour)[0].pcm
        api.submit(11, held_back(neighbour))
        api.until(lambda: api.heard[11].started)
        victim = api.say(prompt(seed=BAD_SEED, steps=20))[0]
        assert isinstance(victim.end, Failed)
        assert (victim.end.status, victim.end.code) == (500, "generation_failed")
        assert "made to fail" not in victim.end.message
        assert stage != "prefill" or not victim.chunks
        api.send(AppendText(11, neighbour.inject.tobytes(), ended=True))
        assert same_but_for_rounding(api.finish(11)[0].pcm, undisturbed)
        # The slot and the pages of the victim serve the next ones as if nothing had been.
        for again in api.say(*[neighbour] * 4):
            assert same_but_for_rounding(again.pcm, undisturbed)
        stats = api.settle()
        assert stats.slots_free == stats.slots_total
        assert not loop.requests
    assert loop.pages["kv"].free == loop.pages["kv"].total


def test_a_prefill_that_fails_beside_running_streams_disturbs_none_of_them() -> None:
    prompts = [prompt(seed=n, steps=40) for n in (1, 2)]
    with faulty("prefill") as (api, _):
        undisturbed = [api.say(made)[0].pcm for made in prompts]
        for number, made in enumerate(prompts, 11):
            api.submit(number, made)
        api.until(lambda: all(api.heard[number].chunks for number in (11, 12)))
        assert isinstance(api.say(prompt(seed=BAD_SEED))[0].end, Failed)
        for heard, alone in zip(api.finish(11, 12), undisturbed, strict=True):
            assert same_but_for_rounding(heard.pcm, alone)


def test_a_clip_that_cannot_be_encoded_fails_all_who_wait_for_it_and_is_forgotten() -> None:
    bad = ReferenceClip("bad", np.zeros(24_001, np.float32))
    good = ReferenceClip("good", np.zeros(24_000, np.float32))
    with faulty("encode") as (api, loop):
        heard = api.say(
            prompt(clip=bad, steps=14), prompt(clip=bad, steps=14), prompt(clip=good, steps=14)
        )
        assert [type(one.end) for one in heard] == [Failed, Failed, Finished]
        assert isinstance(api.say(prompt(clip=bad))[0].end, Failed)
        assert loop.clips.encoded("good")
