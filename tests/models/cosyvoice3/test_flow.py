"""The flow's stream equals its one shot, for any grouping of the blocks, in any company."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tests.models.cosyvoice3.sound import AHEAD, TAIL, FlowRig, Speech, flow
from tests.models.cosyvoice3.sound_checkpoint import SMALL_FLOW
from voxserve.models.cosyvoice3.flow import BLOCK_CODES
from voxserve.models.cosyvoice3.solver import CODE_FRAMES, solver_grid
from voxserve.models.cosyvoice3.state import BLOCK_FRAMES

ONE, TWO = BLOCK_CODES + TAIL, 2 * BLOCK_CODES + TAIL
"""Codes of prompts with one and two full blocks."""
CLOSE = {"float64": 1e-11, "float32": 1e-5}
"""Float64 shows that only the order of additions differs."""


@pytest.mark.parametrize("groups", [[1, 1, 1, 1], [2, 2], [1, 3], [3, 1]])
def test_any_grouping_of_blocks_equals_one_shot(groups: list[int]) -> None:
    """The noise, the positions and the mask depend on the frame alone, and pages lose nothing."""
    rig = FlowRig(dtype="float64")
    speech = Speech("a", ONE, sum(groups) * BLOCK_CODES - ONE - 4)
    whole = rig.whole(Speech("a", speech.prompt, speech.new))
    assert_close(rig.whole(speech, groups), whole, atol=CLOSE["float64"], rtol=0)


@pytest.mark.parametrize("dtype", CLOSE)
def test_a_shared_clip_sounds_as_none(dtype: str) -> None:
    """Clips of different lengths in one run; two requests then use the pages of one of them."""
    rig = FlowRig(dtype=dtype)
    long, short = Speech("long", TWO, 0), Speech("short", ONE, 0)
    rig.listen([long, short])
    kept = {page: rig.state["flow.kv.1"][page].clone() for page in long.pages}
    for new in (30, 62):
        shared = Speech("long", TWO, new, list(long.pages), long.conv, long.solved)
        chunks = rig.whole(shared, [1] * (shared.blocks - 2))
        assert_close(chunks, rig.whole(Speech("long", TWO, new)), atol=CLOSE[dtype], rtol=0)
    other = Speech("short", ONE, 12, list(short.pages), short.conv, short.solved)
    assert_close(rig.whole(other), rig.whole(Speech("short", ONE, 12)), atol=CLOSE[dtype], rtol=0)
    for page, before in kept.items():
        assert torch.equal(rig.state["flow.kv.1"][page], before), "a shared page never changes"


@pytest.mark.parametrize("dtype", CLOSE)
def test_interleaved_rows_equal_each_alone(dtype: str) -> None:
    """Requests at different blocks in random company; a last chunk may be short."""
    rng = np.random.default_rng(2)
    rig = FlowRig(dtype=dtype)
    speeches = [Speech(f"s{i}", prompt, new) for i, (prompt, new) in enumerate(SHAPES)]
    alone = [rig.whole(Speech(s.name, s.prompt, s.new)) for s in speeches]
    mels: dict[str, list[torch.Tensor]] = {s.name: [] for s in speeches}
    for speech in speeches:
        speech.pages = rig.take(speech.blocks)
    while left := [s for s in speeches if s.solved < s.blocks]:
        group = [left[i] for i in rng.permutation(len(left))[: rng.integers(1, 4)]]
        total = {s.name: s.prompt + s.new for s in group}
        starts = {s.name: s.solved * BLOCK_CODES for s in group}
        end = {n: min(start + BLOCK_CODES + AHEAD, total[n]) for n, start in starts.items()}
        for speech, mel in zip(group, rig.run(group, 1, end), strict=True):
            real = min(BLOCK_CODES, total[speech.name] - starts[speech.name])
            mels[speech.name].append(mel[: CODE_FRAMES * real])
    for speech, expected in zip(speeches, alone, strict=True):
        mel = torch.cat(mels[speech.name])[CODE_FRAMES * speech.prompt :]
        assert_close(mel, expected, atol=CLOSE[dtype], rtol=0)


SHAPES = [(ONE, 12), (ONE, 37), (TWO, 20), (ONE, 1), (TWO, 50)]


def test_a_block_sees_nothing_behind_itself() -> None:
    """And its mel frames depend on the three codes that follow it."""
    rig = FlowRig()
    speech = Speech("a", ONE, 37)
    whole = rig.whole(speech)
    blocks = (speech.prompt + speech.new) // BLOCK_CODES
    first = rig.whole(Speech("a", ONE, 12 + AHEAD))
    near = CODE_FRAMES * 12
    assert blocks == 3
    assert_close(first[:near], whole[:near], atol=CLOSE["float32"], rtol=0)
    without = rig.whole(Speech("a", ONE, 12))
    assert (without[:near] - whole[:near]).abs().max() > 0.01


def test_the_solver_reaches_one() -> None:
    times, sizes = solver_grid(SMALL_FLOW.steps)
    assert times[0] == 0 and len(times) == len(sizes) == 10
    assert sum(sizes) == pytest.approx(1, abs=1e-6)
    assert_close(times[5], torch.tensor(1 - 2**-0.5), atol=1e-6, rtol=0)


def test_bfloat16_is_near_float32() -> None:
    """Matrices in bfloat16, what adds up over the steps in float32."""
    exact = FlowRig().whole(Speech("a", ONE, 30))
    rough = FlowRig(dtype="bfloat16").whole(Speech("a", ONE, 30), [1] * 3)
    assert rough.dtype == torch.float32
    error = (rough - exact).pow(2).mean().sqrt() / exact.pow(2).mean().sqrt()
    assert error < 0.05


def test_codes_out_of_range_are_no_crash() -> None:
    """The end of speech is beyond the codes; should it ever get here it must not read elsewhere."""
    module = flow("float32")
    codes = torch.full((1, 2 + BLOCK_CODES + AHEAD), 6562)
    known = torch.ones_like(codes, dtype=torch.bool)
    with torch.inference_mode():
        assert module.encode(codes, known).isfinite().all()
        assert module.encode(codes - 6570, known).shape == (1, BLOCK_FRAMES, 80)
