"""Tiny through the real loop, the real CPU lanes and a socket."""

import dataclasses
import random
import re
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.engine.harness import Api, engine, prompt, same_but_for_rounding
from voxserve.engine.loop import Loop
from voxserve.requests import ReferenceClip
from voxserve.wire import AppendText, Cancel, Cancelled, Drain, Failed, Finished, Progress

SAMPLE_BYTES = 1920 * 2


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Api, Loop]]:
    with engine({"engine": {"deterministic": True}}) as parts:
        yield parts


@pytest.fixture
def api(running: tuple[Api, Loop]) -> Api:
    return running[0]


def clip(key: str, seconds: float = 1.0) -> ReferenceClip:
    time_s = np.arange(int(24_000 * seconds)) / 24_000
    return ReferenceClip(key, np.sin(2000.0 * len(key) * time_s).astype(np.float32))


def test_a_request_comes_back_whole_and_in_order(api: Api) -> None:
    (heard,) = api.say(prompt("Hello there.", seed=3))
    assert heard.started == 1
    assert isinstance(heard.end, Finished) and heard.end.reason == "stop"
    assert heard.end.steps == heard.end.frames + 1
    assert len(heard.pcm) == heard.end.frames * SAMPLE_BYTES
    assert [chunk.last for chunk in heard.chunks] == [False] * (len(heard.chunks) - 1) + [True]


def test_a_request_stops_at_its_step_limit(api: Api) -> None:
    (heard,) = api.say(prompt(steps=14))
    assert heard.end == Finished(max(api.heard), "length", frames=14, steps=14)
    assert len(heard.pcm) == 14 * SAMPLE_BYTES


def test_deterministic_audio_is_the_same_alone_and_among_others(api: Api) -> None:
    prompts = [prompt(f"number {n}", seed=n, steps=13 + 2 * n) for n in range(5)]
    together = api.say(*prompts)
    for made, heard in zip(prompts, together, strict=True):
        assert api.say(made)[0].pcm == heard.pcm
    assert len({heard.pcm for heard in together}) == len(prompts)


@pytest.mark.parametrize("settings", [{}, {"dtype": "float64"}])
def test_rows_share_batches_without_touching_each_other(api: Api, settings: dict[str, str]) -> None:
    prompts = [prompt(f"number {n}", seed=n, steps=13 + 2 * n) for n in range(5)]
    with engine({"engine": settings}) as (batched, _):
        together = batched.say(*prompts)
        alone = [batched.say(made)[0] for made in prompts]
    with engine({"engine": settings}, padded=True) as (padded, _):
        filled_up = padded.say(*prompts)
    for one, other, third in zip(alone, together, filled_up, strict=True):
        assert same_but_for_rounding(one.pcm, other.pcm)
        assert same_but_for_rounding(one.pcm, third.pcm)


def test_text_that_arrives_in_pieces_is_spoken_as_if_it_had_come_whole(api: Api) -> None:
    whole = prompt("Hello there, you.", seed=5, steps=40)
    late = dataclasses.replace(whole, inject=whole.inject[:2], text_open=True)
    api.submit(101, late)
    for first in range(2, len(whole.inject), 5):
        api.until(lambda: api.heard[101].chunks)
        rows = whole.inject[first : first + 5]
        api.send(AppendText(101, rows.tobytes(), ended=first + 5 >= len(whole.inject)))
    (heard,) = api.finish(101)
    assert heard.pcm == api.say(whole)[0].pcm


def test_text_for_a_waiting_request_is_kept(api: Api) -> None:
    whole = prompt("Hello there, you.", seed=5, steps=30)
    for number in range(111, 115):
        api.submit(number, prompt(steps=20))
    api.submit(115, dataclasses.replace(whole, inject=whole.inject[:0], text_open=True))
    api.send(AppendText(115, whole.inject[:9].tobytes()))
    api.send(AppendText(115, whole.inject[9:].tobytes(), ended=True))
    assert api.finish(115)[0].pcm == api.say(whole)[0].pcm


def test_reference_clips_shape_the_voice_and_are_found_again(
    running: tuple[Api, Loop],
) -> None:
    api, loop = running
    spoken = [prompt(seed=2, steps=14, clip=clip(key)) for key in ("a", "bb", "a")]
    first, other, again = (api.say(one)[0] for one in spoken)
    assert first.pcm == again.pcm != other.pcm
    assert loop.clips.encoded("a") and loop.clips.encoded("bb")


def test_more_clips_than_rows_take_turns(running: tuple[Api, Loop]) -> None:
    api, loop = running
    keys = ("c", "dd", "eee", "ffff")
    prompts = [prompt(steps=20, clip=clip(key)) for key in keys]
    together = api.say(*prompts, ttfa_s=None)
    assert all(isinstance(heard.end, Finished) for heard in together)
    assert sum(loop.clips.encoded(key) for key in keys) == 2
    alone = [api.say(one)[0] for one in prompts]
    assert [heard.pcm for heard in together] == [heard.pcm for heard in alone]


def test_after_cancel_no_chunk_follows_and_the_slot_is_free(running: tuple[Api, Loop]) -> None:
    api, loop = running
    waits = []
    for number in range(301, 306):
        api.submit(number, prompt(steps=400))
        while len(api.heard[number].chunks) < 2:
            api.read()
        sent = time.monotonic()
        api.send(Cancel(number))
        (heard,) = api.finish(number)
        waits.append(time.monotonic() - sent)
        assert isinstance(heard.end, Cancelled)
        assert heard.end.generated_s == pytest.approx(len(heard.pcm) / 48_000)
    assert sorted(waits)[2] < 0.1
    api.say(prompt())  # `Heard` fails on anything that comes for the cancelled ones meanwhile
    assert not loop.requests.keys() & set(range(301, 306))


def test_a_request_cancelled_in_the_queue_is_never_prefilled(api: Api) -> None:
    for number in range(311, 315):
        api.submit(number, prompt(steps=60))
    api.until(lambda: all(api.heard[number].chunks for number in range(311, 315)))
    api.submit(315, prompt())
    api.send(Cancel(315), *(Cancel(number) for number in range(311, 315)), Cancel(99_999))
    heard = api.finish(*range(311, 316))
    assert all(isinstance(one.end, Cancelled) for one in heard)
    assert heard[-1].started == 0 and heard[-1].end == Cancelled(315, 0.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": np.zeros((9, 2), np.int32)}, "prompt has 9 positions, at most 8"),
        ({"max_steps": 3000}, "3000 steps need a context of 3003, at most 2048"),
        ({"rows": np.zeros((4, 3), np.int32)}, r"are \(3, 1, 5\), expected \(2, 1, 5\)"),
        ({"clip": clip("long", 31.0)}, "reference clip has 31.00 s, at most 30"),
        ({"seed": 2**63 - 1, "max_steps": 0}, "0 steps"),
    ],
)
def test_a_prompt_that_can_never_run_is_a_clear_400(
    api: Api, changes: dict[str, object], message: str
) -> None:
    (heard,) = api.say(dataclasses.replace(prompt(), **changes))  # type: ignore[arg-type]
    assert isinstance(heard.end, Failed) and heard.end.status == 400
    assert re.search(message, heard.end.message)
    assert isinstance(api.say(prompt())[0].end, Finished)


def test_few_pages_make_requests_wait_and_a_small_context_refuses_what_it_cannot_hold() -> None:
    with engine({"engine": {"context": 64, "pages": 2}}) as (api, loop):
        heard = api.say(*(prompt(seed=n, steps=14) for n in range(4)), prompt(steps=62))
        assert [type(one.end) for one in heard] == [Finished] * 4 + [Failed]
        assert isinstance(heard[4].end, Failed) and heard[4].end.status == 400
        late = dataclasses.replace(prompt(), inject=prompt().inject[:0], text_open=True)
        api.submit(9, dataclasses.replace(late, max_steps=2045))
        api.send(AppendText(9, prompt().inject.tobytes(), ended=True))
        assert isinstance(api.finish(9)[0].end, Finished)
    assert loop.pages["kv"].free == loop.pages["kv"].total == 2


def test_a_full_window_holds_a_request_until_its_client_reads_on(
    running: tuple[Api, Loop],
) -> None:
    api, _ = running
    api.submit(401, prompt(steps=60), window_s=1.0)
    heard = api.heard[401]
    api.settle()
    held_at = len(heard.pcm)
    assert 0 < held_at < 2.5 * 48_000
    api.settle()
    assert len(heard.pcm) == held_at
    api.send(Progress(401, held_at / 48_000))
    api.until(lambda: len(heard.pcm) > held_at)
    api.send(Progress(401, 100.0))
    assert isinstance(api.finish(401)[0].end, Finished)


def test_a_thousand_cancels_at_random_moments_leak_nothing(
    running: tuple[Api, Loop],
) -> None:
    api, loop = running
    chance = random.Random(1)
    open_requests: list[int] = []
    for number in range(1001, 2001):
        live = chance.random() < 0.05
        made = prompt(steps=chance.randint(1, 40), clip=clip("a") if live else None)
        api.submit(number, dataclasses.replace(made, text_open=live))
        open_requests.append(number)
        for _ in range(chance.randint(1, 6) if chance.random() < 0.04 else 0):
            if not live and not api.heard[number].end:
                api.read()  # lets the engine go on until it has something to say
        while len(open_requests) > chance.randint(0, 12):
            api.send(Cancel(open_requests.pop(chance.randrange(len(open_requests)))))
    api.send(*(Cancel(number) for number in open_requests))
    all_heard = api.finish(*range(1001, 2001))
    cancelled = [heard for heard in all_heard if isinstance(heard.end, Cancelled)]
    assert len(cancelled) > 500
    assert {bool(heard.started) for heard in cancelled} == {False, True}
    assert {bool(heard.chunks) for heard in cancelled} == {False, True}
    stats = api.settle()
    assert stats.slots_free == stats.slots_total and stats.waiting == 0
    assert all(free == total for free, total in stats.pages.values())
    assert not loop.requests and not loop.slots.live.any()
    for key in ("fresh", "another"):
        loop.clips.place(loop.clips.hold(key, {}))
    for key in ("fresh", "another"):
        loop.clips.let_go(key)


@pytest.mark.parametrize(
    "switch",
    [{"overlap": False}, {"urgent_lane": False}, {"background_lane": False}, {"lm_in_flight": 1}],
)
def test_every_ablation_switch_leaves_the_speech_as_it_is(
    api: Api, switch: dict[str, object]
) -> None:
    prompts = [prompt(seed=n, steps=15) for n in range(5)]
    with engine({"policy": switch}) as (switched, _):
        for ours, theirs in zip(switched.say(*prompts), api.say(*prompts), strict=True):
            assert same_but_for_rounding(ours.pcm, theirs.pcm)


def test_drain_finishes_what_runs_and_refuses_the_rest() -> None:
    with engine() as (api, loop):
        for number in (1, 2):
            api.submit(number, prompt(steps=40))
        api.until(lambda: api.heard[1].started)
        api.send(Drain())
        api.submit(3, prompt())
        ends = [heard.end for heard in api.finish(1, 2, 3)]
    assert [type(end) for end in ends] == [Finished, Finished, Failed]
    assert isinstance(ends[2], Failed) and (ends[2].status, ends[2].code) == (503, "draining")
    assert not loop.requests
