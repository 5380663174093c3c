"""Stages of mini can be captured: on a GPU nothing is read back, no shape depends on data.

Tensors on the meta device have shapes alone, and raise where a value would have to be known.
"""

import torch

from tests.models.mini_rows import SLOTS, bundled
from voxserve.models.mini.config import PAGE_FRAMES, POOL, MiniConfig
from voxserve.models.mini.stages import MiniModel
from voxserve.nn.blank import blank

ROWS, PHONEMES, PAGES, FRAMES = 3, 512, 4, 10
DEVICE = "meta"


def model() -> MiniModel:
    config = MiniConfig.read(bundled().config)
    with blank():
        whole = MiniModel(config)
    return whole.to(DEVICE)


def state(config: MiniConfig) -> dict[str, torch.Tensor]:
    return {
        tensor.name: torch.zeros(
            ((PAGES if tensor.scope == "page" else SLOTS) + 1, *tensor.shape),
            dtype=getattr(torch, "float32" if tensor.dtype == "model" else tensor.dtype),
            device=DEVICE,
        )
        for tensor in config.state()
    }


def test_no_stage_looks_at_values() -> None:
    mini = model()
    held = state(mini.config)
    slots = torch.arange(ROWS, device=DEVICE)
    prompt = {
        "slots": slots,
        "lengths": slots,
        "rows": torch.zeros(ROWS, PHONEMES, 1, dtype=torch.int64, device=DEVICE),
        "sampling": torch.ones(ROWS, 5, device=DEVICE),
        "seeds": slots,
        f"pages_{POOL}": torch.zeros(ROWS, PAGES, dtype=torch.int64, device=DEVICE),
    }
    assert mini.prefill(prompt, held)["codes"].shape == (ROWS, 6)
    assert mini.decode({"slots": slots, "steps": slots}, held)["codes"].shape == (ROWS, 6)
    chunk = {
        "slots": slots,
        "codes": torch.zeros(ROWS, FRAMES, 6, dtype=torch.int64, device=DEVICE),
        "lengths": slots,
        "fresh": torch.zeros(ROWS, dtype=torch.bool, device=DEVICE),
    }
    assert mini.codec(chunk, held)["audio"].shape == (ROWS, FRAMES * 1200)


def test_a_gpu_makes_room_for_every_page() -> None:
    mini = model()
    ids = torch.zeros(ROWS, PHONEMES, dtype=torch.int64, device=DEVICE)
    lengths = torch.zeros(ROWS, dtype=torch.int64, device=DEVICE)
    told, frames = mini._told(ids, lengths, PAGES * PAGE_FRAMES)
    assert told.shape == (ROWS, PAGES * PAGE_FRAMES, mini.config.lm.width)
    assert frames.shape == (ROWS,)
