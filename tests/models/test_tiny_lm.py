"""The language model of tiny: against the plain reference, and row by row against itself alone."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.models import tiny_reference as reference
from tests.models.tiny_rows import TEXT, Rows, config, model, prompt
from voxserve.models.tiny import stages
from voxserve.models.tiny.stages import TinyModel

STEPS = 70
"""Enough to cross a page of keys and values."""

SPOKEN = prompt(seed=11, repetition_penalty=1.4, top_k=20, top_p=0.9)
AfterEachStep = Callable[[Rows], None]


@cache
def reference_speech() -> reference.Speech:
    return reference.speak(model().state_dict(), config(), SPOKEN, STEPS)


def check_against_reference(tiny: TinyModel, after: AfterEachStep = lambda rows: None) -> None:
    """Codes, and what the output layers were given, over STEPS steps; float64 to 1e-10.

    Hidden states are of size 1; what is left is rounding in another order. Each step is compared as
    it comes, so that a slip ends soon.
    """
    expected = reference_speech()
    hidden: list[Tensor] = []
    depth: list[Tensor] = []
    hooks = [
        tiny.lm.output.register_forward_pre_hook(lambda _, given: hidden.append(given[0][0])),
        tiny.lm.depth.norm.register_forward_hook(lambda _, __, out: depth.append(out[0])),
    ]
    rows, books = Rows(tiny), len(expected.depth) // STEPS
    for step in range(STEPS):
        codes = rows.decode({3: (SPOKEN, step)}) if step else rows.prefill({3: SPOKEN})
        after(rows)
        assert len(hidden) == step + 1 and len(depth) == books * (step + 1)
        assert codes.tolist() == expected.codes[step : step + 1]
        assert_close(hidden[step], expected.hidden[step], rtol=0, atol=1e-10)
        heard, wanted = (all_of[-books:] for all_of in (depth, expected.depth[: len(depth)]))
        assert_close(torch.stack(heard), torch.stack(wanted), rtol=0, atol=1e-10)
    for hook in hooks:
        hook.remove()


def test_prefill_and_decode_equal_the_plain_reference() -> None:
    check_against_reference(model())


STATE = ["pages", "prompt", "text_end", "codes", "said", "sampling", "seed", "kv.0", "kv.1"]


@pytest.mark.parametrize("name", STATE)
def test_a_lost_state_tensor_is_noticed(name: str) -> None:
    def lose(rows: Rows) -> None:
        rows.state[f"lm.{name}"].zero_()

    with pytest.raises(AssertionError):
        check_against_reference(model(), lose)


@pytest.mark.parametrize("frequency", range(8))
@pytest.mark.parametrize("part", ["body", "depth"])
def test_a_lost_rotary_frequency_is_noticed(part: str, frequency: int) -> None:
    tiny = model()
    rope = tiny.lm.rope if part == "body" else tiny.lm.depth.rope
    rope.frequencies[frequency] = 0
    with pytest.raises(AssertionError):
        check_against_reference(tiny)


def test_a_lost_repetition_penalty_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "penalise", lambda logits, seen, penalty: logits)
    with pytest.raises(AssertionError):
        check_against_reference(model())


PROMPTS = [
    prompt("One short text.", seed=1),
    prompt("还有一个，用中文。", seed=2, voice="vivian", language="zh", temperature=0.0),
    prompt("And a third, somewhat longer than the others.", seed=3, top_k=5, top_p=0.5),
]


def alone(number: int, steps: int = 20) -> Tensor:
    return Rows(model(), seed=number).speak({0: PROMPTS[number]}, steps)[0]


def test_interleaved_rows_equal_each_alone() -> None:
    """Rows start at different times in any slots, and share batches in changing order."""
    rows = Rows(model())
    started = {2: (0, 0), 4: (1, 5), 1: (2, 9)}
    codes: dict[int, list[Tensor]] = {slot: [] for slot in started}
    for turn in range(20):
        running = {}
        for slot, (number, begin) in started.items():
            if turn == begin:
                codes[slot].append(rows.prefill({slot: PROMPTS[number]})[0])
            elif turn > begin:
                running[slot] = (PROMPTS[number], turn - begin)
        order = sorted(running, key=lambda slot: (slot * turn) % 7)
        batch = {slot: running[slot] for slot in order}
        if batch:
            for slot, row in zip(batch, rows.decode(batch), strict=True):
                codes[slot].append(row)
    for slot, (number, _) in started.items():
        said = torch.stack(codes[slot])
        assert torch.equal(said, alone(number)[: len(said)])


def test_a_reused_slot_is_clean() -> None:
    rows = Rows(model())
    rows.speak({3: PROMPTS[2]}, 30)
    assert torch.equal(rows.speak({3: PROMPTS[0]}, 20)[0], alone(0))


def test_a_reused_slot_that_is_not_clean_is_noticed() -> None:
    """The seed of the slot's last request shows through."""
    rows = Rows(model())
    rows.speak({3: PROMPTS[2]}, 30)
    seed = rows.state["lm.seed"][3].clone()
    codes = [rows.prefill({3: PROMPTS[0]})]
    rows.state["lm.seed"][3] = seed
    codes += [rows.decode({3: (PROMPTS[0], step)}) for step in range(1, 20)]
    assert not torch.equal(torch.cat(codes), alone(0))


@pytest.mark.parametrize("pad", [1, 3])
def test_padding_changes_nothing(pad: int) -> None:
    rows = Rows(model())
    neighbour = rows.speak({0: PROMPTS[1]}, 5)[0]
    padded = rows.speak({3: PROMPTS[0], 1: PROMPTS[2]}, 20, pad)
    later = [rows.decode({0: (PROMPTS[1], step)})[0] for step in range(5, 20)]
    assert torch.equal(padded[0], alone(0))
    assert torch.equal(padded[1], alone(2))
    assert torch.equal(torch.stack([*neighbour, *later]), alone(1))


def test_the_seed_decides_alone() -> None:
    rows = Rows(model())
    one, two = (prompt(seed=seed) for seed in (7, 8))
    first, again, other = rows.speak({0: one, 1: one, 2: two}, 20)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_speech_ends_soon_behind_its_text_and_not_before_a_second() -> None:
    for text in ("Hi.", TEXT * 4):
        one = prompt(text, seed=5)
        codes = Rows(model()).speak({0: one}, one.max_steps)[0]
        end = codes[:, 0].tolist().index(config().eos)
        assert max(13, len(text)) <= end < max(13, len(text)) + 20


def test_the_end_code_can_be_masked() -> None:
    one = prompt("Hi.", seed=5, extra={"ignore_eos": True, "max_frames": 60})
    assert one.max_steps == 60
    codes = Rows(model()).speak({0: one}, 60)[0]
    assert config().eos not in codes[:, 0].tolist()


def test_codes_are_in_range() -> None:
    codes = torch.stack(Rows(model()).speak({0: PROMPTS[0], 1: PROMPTS[2]}, 60))
    assert codes[..., 0].max() <= config().eos
    assert codes[..., 1:].max() < config().codes
    assert codes.min() >= 0
