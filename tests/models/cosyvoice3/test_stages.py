"""The stages as a whole: what a clip shares, how chunks are cut, and who sees whose rows."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.models.cosyvoice3.rig import CONTEXT, Rig, prompt
from tests.models.cosyvoice3.sound_checkpoint import codes
from tests.parity.qwen3_tts.checkpoint import speech_like
from voxserve.models.cosyvoice3.limits import AHEAD, BLOCK, LEFT, TAIL, clip_codes
from voxserve.requests import ReferenceClip

CLIP = ReferenceClip("one", speech_like(3.13), "The quick brown fox.")
OTHER = ReferenceClip("two", speech_like(1.9), "Another one.")


@cache
def heard() -> Rig:
    """A rig whose clips 0 and 1 are CLIP and OTHER. Wide floats: random vocoders turn rounding of
    mel frames into a hundred times as much."""
    rig = Rig(dtype="float64")
    rig.encode(0, CLIP)
    rig.encode(1, OTHER)
    return rig


def said(name: str, count: int) -> list[int]:
    return [int(code) for code in codes(name, count)]


def whole(rig: Rig, row: int, new: list[int]) -> Tensor:
    """Audio of all of it at once, with nothing from the clip's pages."""
    model, state = rig.model, {k: v.clone() for k, v in rig.state.items()}
    count = int(state["clip.count"][row])
    seen = (count - TAIL) // BLOCK * BLOCK + TAIL
    every = state["clip.codes"][row, count - seen : count].tolist() + new
    blocks = -(-len(every) // BLOCK)
    width = LEFT + blocks * BLOCK + AHEAD
    line, known = torch.zeros(1, width, dtype=torch.int64), torch.zeros(1, width, dtype=torch.bool)
    line[0, LEFT : LEFT + len(every)], known[0, LEFT : LEFT + len(every)] = (
        torch.tensor(every),
        True,
    )
    cond = torch.zeros(1, 2 * BLOCK * blocks, 80)
    cond[0, : 2 * seen] = state["clip.mel"][row, 2 * (count - seen) : 2 * count]
    context = state["flow.conv"]
    with torch.inference_mode():
        mel, _ = model.flow.run(
            line,
            known,
            cond,
            state["clip.speaker"][row : row + 1],
            torch.tensor([len(every)]),
            torch.tensor([0]),
            torch.arange(blocks)[None],
            torch.ones(1, blocks, dtype=torch.bool),
            context.new_zeros(1, *context.shape[1:]),
            state,
        )
        return model.vocoder.run(
            mel[:, 2 * seen :],
            torch.tensor([2 * len(new)]),
            torch.tensor([True]),
            torch.tensor([True]),
            torch.tensor([0]),
            state,
        )[0, : len(new) * 960]


@pytest.mark.parametrize("count", [1, 12, 13, 37, 60])
def test_chunks_behind_shared_blocks_give_the_sound_of_the_whole(count: int) -> None:
    rig = heard()
    rig.prefill({1: prompt("Hello there!", CLIP), 2: prompt("Hello there!", CLIP)})
    new = said("whole", count)
    assert_close(rig.say(new), whole(rig, 0, new), rtol=0, atol=1e-5)


def test_a_clip_s_blocks_are_written_once_and_only_read_after() -> None:
    rig = heard()
    before = rig.state["flow.kv.0"][rig.clip_pages(0)].clone()
    rig.prefill({1: prompt("Hello there!", CLIP)})
    rig.say(said("written", 40))
    assert torch.equal(rig.state["flow.kv.0"][rig.clip_pages(0)], before)


def test_rows_of_one_batch_are_strangers() -> None:
    """Different clips, different chunks, one of them the last, beside a padding row."""
    rig, lines = heard(), [said("a", 30), said("b", 55), said("c", 9)]
    alone = []
    for clip, line in zip((0, 1, 0), lines, strict=True):
        rig.prefill({1: prompt("Hello there!", (CLIP, OTHER)[clip])}, clip)
        alone.append(rig.say(line))
    rig.prefill({0: prompt("Hello there!", CLIP), 3: prompt("a", CLIP)}, 0)
    rig.prefill({2: prompt("Hello there!", OTHER)}, 1)
    rig.sound({3: (lines[2], 0, True), 0: (lines[0], 0, False), 2: (lines[1], 0, False)})
    rig.prefill({3: prompt("a", CLIP)}, 0)
    first = rig.sound({2: (lines[1], 0, False), 3: (lines[2], 0, True)})
    rig.prefill({2: prompt("Hello there!", OTHER)}, 1)
    second = rig.sound({0: (lines[0], 12, True), 2: (lines[1], 0, False)})
    third = rig.sound({2: (lines[1], 12, False)}) + rig.sound({2: (lines[1], 37, True)})
    assert_close(first[1], alone[2], rtol=0, atol=1e-5)
    assert_close(second[0], alone[0][-len(second[0]) :], rtol=0, atol=1e-5)
    assert_close(torch.cat([second[1], *third]), alone[1], rtol=0, atol=1e-5)


def test_codes_do_not_depend_on_neighbours_or_the_slot() -> None:
    rig, prompts = (
        heard(),
        [prompt(text, CLIP, seed=n) for n, text in enumerate(("Hi.", "a", "Oh"))],
    )
    alone = []
    for one in prompts:
        row = [int(rig.prefill({1: one})[0])]
        row += [int(rig.decode({1: step})[0]) for step in range(1, 12)]
        alone.append(row)
    together = [rig.prefill(dict(zip((0, 3, 2), prompts, strict=True)))]
    together += [rig.decode(dict.fromkeys((0, 3, 2), step)) for step in range(1, 12)]
    assert torch.stack(together, dim=1).tolist() == alone


def test_what_the_host_counts_is_what_the_encoder_finds() -> None:
    rig = Rig()
    for samples in (38 * 960, 38 * 960 + 479, 70_001, 71_993, 119_999, 120_000):
        rig.encode(1, ReferenceClip("x", speech_like(5.0)[:samples]))
        assert int(rig.state["clip.count"][1]) == clip_codes(samples), samples


def test_random_draws_follow_the_seed_and_avoid_what_was_just_said() -> None:
    rig = heard()
    lines = []
    for seed in (1, 1, 2):
        one = prompt("Hello there! The news.", CLIP, seed=seed, top_k=2, top_p=1.0)
        row = [int(rig.prefill({1: one})[0])]
        row += [int(rig.decode({1: step})[0]) for step in range(1, 60)]
        lines.append(row)
    assert lines[0] == lines[1] != lines[2]
    window = np.lib.stride_tricks.sliding_window_view(np.array(lines[0]), 11)
    repeats = sum(int(line[-1] in line[:-1]) for line in window)
    assert repeats <= 2  # of fifty; with two candidates a step it would be nearly all


def test_penalised_codes_come_back_less() -> None:
    rig, counts = heard(), []
    for penalty in (1.0, 2.0):
        one = prompt("Hello there! The news.", CLIP, temperature=0.0, repetition_penalty=penalty)
        rig.prefill({1: one})
        counts.append(len({int(rig.decode({1: step})[0]) for step in range(1, CONTEXT // 4)}))
    assert counts[1] > counts[0]
