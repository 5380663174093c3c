"""The draw with a second one for what was said lately is `Sampler`'s, and so is what is kept."""

import pytest
import torch

from tests.kernels.rig import DEVICE
from voxserve.kernels.choose_again import Lately, choose_again
from voxserve.models.cosyvoice3.config import LmConfig, Repetition
from voxserve.models.cosyvoice3.lm import Sampler

CODES, SLOTS, ROWS = 30, 9, 8
CONFIG = LmConfig(8, 8, 1, 1, 1, 1e-6, 1e4, 8, CODES)
WIDTH = CONFIG.speech_vocabulary
CASES = {
    "published": (1.0, 25, 0.8, 1.0, 0.0),
    "greedy": (0.0, -1, 1.0, 1.0, 0.0),
    "penalised": (0.7, 20, 0.8, 1.6, 0.0),
    "eager, and not over yet": (1.4, 0, 1.0, 0.6, 4.0),
}


@pytest.mark.parametrize("limit", [1.0, 2.0])
@pytest.mark.parametrize("case", list(CASES))
def test_draws_and_remembers_as_the_sampler_does(case: str, limit: float) -> None:
    """Rows of which half said before, lately and twice, what is likeliest now; ends are likely."""
    generator = torch.Generator().manual_seed(len(case))
    logits = torch.randn(ROWS, WIDTH + 26, generator=generator) * 2
    slots = torch.randperm(SLOTS, generator=generator)[:ROWS]
    steps = torch.randint(1, 9, (ROWS,), generator=generator)
    likeliest = logits[:, :CODES].argmax(dim=1)
    recent = torch.randint(-1, CODES, (SLOTS + 1, 10), generator=generator)
    recent[slots[:4], 2] = likeliest[:4]
    recent[slots[2:6], 9] = likeliest[2:6]
    said = torch.rand(SLOTS + 1, WIDTH, generator=generator) < 0.3
    mute = torch.rand(SLOTS + 1, generator=generator) < 0.3
    seeds = torch.randint(-(2**62), 2**62, (SLOTS + 1,), generator=generator)
    values = torch.tensor(CASES[case]).repeat(SLOTS + 1, 1)
    on = [x.to(DEVICE) for x in (logits, slots, steps, values, seeds, mute, said, recent)]
    logits, slots, steps, values, seeds, mute, said, recent = on
    kept = torch.zeros_like(seeds)
    wanted = Sampler(CONFIG, Repetition(0.8, 25, 10, limit)).draw(
        logits[:, :WIDTH].clone(),
        values[slots],
        seeds[slots],
        steps,
        mute[slots],
        said[slots],
        recent[slots],
    )
    said_after, recent_after = said.clone(), recent.clone()
    said_after[slots, wanted] = True
    recent_after[slots] = torch.cat((recent[slots, 1:], wanted[:, None]), dim=1)
    lately = Lately(values, seeds, mute, said, recent, kept, limit, CODES, CONFIG.end)
    got = choose_again(logits, slots, steps, lately)
    assert got.tolist() == wanted.tolist() == kept[slots].tolist()
    assert torch.equal(said, said_after) and torch.equal(recent, recent_after)
