"""The variants that mini's choices are measured against: letters as input, a depth transformer,
other numbers of codebooks, and runs that agree on their length."""

import importlib
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

TRAINING = Path(__file__).parents[2] / "training" / "voice"
NAMES = ("journal", "codec", "lm", "pace", "ablations.characters", "ablations.depth")


@pytest.fixture(scope="module")
def training() -> Iterator[dict[str, ModuleType]]:
    """The training code's modules, which import each other by plain names."""
    before = set(sys.modules)
    sys.path.insert(0, str(TRAINING))
    torch.set_num_threads(1)
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(TRAINING))
        for name in {*NAMES, "ablations"} - before:
            sys.modules.pop(name, None)


def test_letters_share_the_time_of_their_word(training: dict[str, ModuleType]) -> None:
    characters = training["ablations.characters"]
    phonemes, text = "hˌW, nˈW?", "How, now?"
    groups = characters.align(phonemes, text)
    # edge h ˌ W , space n ˈ W ? edge
    units = np.array([3, 2, 0, 5, 4, 1, 2, 1, 4, 6, 2])
    spread = characters.spread(units, groups, whole=True)
    # edge H o w , space n o w ? edge
    assert spread.tolist() == [3, 2, 3, 2, 4, 1, 2, 3, 2, 6, 2]
    shares = characters.spread(units.astype(np.float32), groups, whole=False)
    assert shares[1:4].tolist() == pytest.approx([7 / 3] * 3)
    assert len(characters.symbols(text)) == len(spread)


def test_a_word_shorter_than_its_letters_keeps_its_length(training: dict[str, ModuleType]) -> None:
    characters = training["ablations.characters"]
    groups = characters.align("θɹu", "through")
    spread = characters.spread(np.array([1, 1, 1, 1, 1]), groups, whole=True)
    assert spread[1:-1].sum() == 3
    assert spread.min() == 0
    guessed = torch.tensor([[1.0, 0.4, 0.4, 0.4, 0.4, 0.4, 2.0]])
    assert characters.whole_units(guessed).tolist() == [[1, 0, 1, 0, 1, 0, 2]]


@pytest.mark.parametrize(
    ("phonemes", "text"), [("ˈAt pˈipᵊl", "8 people"), ("wˈʌn", "one two"), ("kæfˈA", "café")]
)
def test_what_cannot_be_laid_beside_is_refused(
    training: dict[str, ModuleType], phonemes: str, text: str
) -> None:
    assert training["ablations.characters"].align(phonemes, text) is None


@pytest.mark.parametrize("kind", ["delay4", "delay8", "depth6"])
@torch.no_grad()
def test_generation_is_what_training_predicts(training: dict[str, ModuleType], kind: str) -> None:
    lm, depth = training["lm"], training["ablations.depth"]
    torch.manual_seed(0)
    books = int(kind[-1])
    model = (depth.DepthLM if kind.startswith("depth") else lm.VoiceLM)(codebooks=books).eval()
    told, frames = torch.randn(2, 5, lm.WIDTH), torch.tensor([5, 3])
    codes = model.generate(told, frames, 0.0)
    assert codes.shape == (2, 5, books)
    assert (codes[1, 3:] == lm.PAD).all() and (codes[1, :3] < lm.PAD).all()
    # Every code was the likeliest: no other loses less, whichever place is looked at.
    best = model.losses(codes, told, lambda history: history)
    for book in range(books):
        other = codes.clone()
        other[0, 4, book] = (other[0, 4, book] + 1) % lm.CODES
        worse = model.losses(other, told, lambda history: history)
        assert worse[book] > best[book]
        assert all(worse[k] == best[k] for k in range(book))


def test_runs_agree_on_their_length(training: dict[str, ModuleType], tmp_path: Path) -> None:
    def run(name: str, step_s: float) -> int:
        args = Namespace(together=tmp_path / "pace", runs=2, name=name, until=time.time() + 1.5)
        journal = training["journal"].Journal(tmp_path / f"{name}.json", 5)
        pace = training["pace"].Pace(args, journal, 5, 15)
        while pace.share() < 1:
            time.sleep(step_s)
            journal.add({})
        steps: int = journal.step
        return steps

    with ThreadPoolExecutor(2) as pool:
        fast, slow = pool.map(run, ("fast", "slow"), (0.002, 0.02))
    assert fast == slow
    assert 15 < slow < 80
