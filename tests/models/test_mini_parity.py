"""The server's mini says what the training code's model says, with the weights that ship."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.models.mini_rows import bundled, host
from voxserve.models.mini.config import POOL
from voxserve.models.mini.stages import MiniModel
from voxserve.models.mini.weights import load, read_bytes
from voxserve.requests import SpeechRequest

TRAINING = Path(__file__).parents[2] / "training" / "voice"
TEXT = "Good morning, and welcome."


@pytest.fixture(scope="module")
def reference() -> Iterator[tuple[ModuleType, ModuleType]]:
    """The training code's `lm` and `codec`, which import each other by plain names."""
    before = set(sys.modules)
    sys.path.insert(0, str(TRAINING))
    try:
        yield importlib.import_module("lm"), importlib.import_module("codec")
    finally:
        sys.path.remove(str(TRAINING))
        for name in {"lm", "codec"} - before:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def model() -> MiniModel:
    torch.set_num_threads(1)
    return load(bundled(), "cpu", "float32")


def greedy(model: MiniModel) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Frames [F, K] of TEXT, and the state behind them."""
    prompt = host().prompt(SpeechRequest(text=TEXT, temperature=0.0))
    state = {
        tensor.name: torch.zeros(
            ((8 if tensor.scope == "page" else 1) + 1, *tensor.shape),
            dtype=getattr(torch, "float32" if tensor.dtype == "model" else tensor.dtype),
        )
        for tensor in model.config.state()
    }
    slots = torch.tensor([0])
    io = {
        "slots": slots,
        "lengths": torch.tensor([len(prompt.rows)]),
        "rows": torch.from_numpy(prompt.rows).long()[None],
        "sampling": torch.from_numpy(prompt.sampling)[None],
        "seeds": torch.tensor([prompt.seed]),
        f"pages_{POOL}": torch.tensor([[4, 1, 6]]),
    }
    steps = [model.prefill(io, state)["codes"]]
    frames = int(state["lm.frames"][0])
    for step in range(1, frames + model.config.lag):
        steps.append(model.decode({"slots": slots, "steps": torch.tensor([step])}, state)["codes"])
    codes = torch.cat(steps)
    books = range(model.config.codec.codebooks)
    return torch.stack([codes[k : k + frames, k] for k in books], dim=1), state


def test_codes_and_sound_equal_the_training_code(
    model: MiniModel, reference: tuple[ModuleType, ModuleType]
) -> None:
    lm, codec = reference
    folder = bundled().folder
    assert folder is not None
    language, decoder = lm.VoiceLM().eval(), codec.Decoder().eval()
    language.load_state_dict(read_bytes(folder / "lm.safetensors"))
    decoder.load_state_dict(read_bytes(folder / "codec.safetensors"))
    rows = host().prompt(SpeechRequest(text=TEXT)).rows
    ids = torch.from_numpy(rows).long().T
    expected, frames = lm.speak(language, ids, torch.ones_like(ids, dtype=torch.bool), 0.0)
    mine, state = greedy(model)
    assert len(mine) == int(frames[0]) > 20
    assert torch.equal(mine, expected[0])
    chunk = {
        "slots": torch.tensor([0]),
        "codes": mine[None],
        "lengths": torch.tensor([len(mine)]),
        "fresh": torch.tensor([True]),
    }
    with torch.no_grad():
        sound = decoder(codec.from_codes(expected)).clamp(-1, 1)
    assert sound.abs().max() > 0.05
    # Sums of a thousand float32 terms in another order.
    torch.testing.assert_close(model.codec(chunk, state)["audio"], sound, atol=1e-5, rtol=0)
