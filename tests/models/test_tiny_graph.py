"""Stages can be captured: on a GPU nothing is read back and no shape depends on data.

No GPU is needed to see that: tensors on the meta device have shapes alone, and raise where a value
would have to be known.
"""

from collections.abc import Callable

import pytest
import torch
from torch.testing import assert_close

from tests.models.tiny_rows import CLIPS, SLOTS, Rows, config, host, model, prompt
from voxserve.models.tiny.stages import TinyModel
from voxserve.nn.attention import Paging
from voxserve.nn.blank import blank

ROWS = 3
DEVICE = "meta"


def io_of(stage: str) -> dict[str, torch.Tensor]:
    slots = torch.arange(ROWS, device=DEVICE)
    flags = torch.zeros(ROWS, dtype=torch.bool, device=DEVICE)
    count = torch.full((ROWS,), 4, device=DEVICE)
    if stage == "prefill":
        return {
            "slots": slots,
            "lengths": count,
            "rows": torch.zeros(ROWS, 8, 2, dtype=torch.int64, device=DEVICE),
            "sampling": torch.ones(ROWS, 5, device=DEVICE),
            "seeds": slots,
            "ignore_eos": flags,
            "clips": torch.zeros(ROWS, dtype=torch.int64, device=DEVICE),
            "pages_kv": torch.zeros(ROWS, config().pages, dtype=torch.int64, device=DEVICE),
        }
    if stage == "decode":
        inject = torch.zeros(ROWS, 1, dtype=torch.int64, device=DEVICE)
        return {"slots": slots, "steps": count, "inject": inject}
    if stage == "codec":
        return {
            "slots": slots,
            "codes": torch.zeros(ROWS, 4, 4, dtype=torch.int64, device=DEVICE),
            "valid": torch.ones(ROWS, 4, dtype=torch.bool, device=DEVICE),
            "lengths": count,
            "first_frame": count,
            "fresh": flags,
            "last": flags,
        }
    audio = torch.zeros(ROWS, 24_000, device=DEVICE)
    return {"clips": torch.zeros_like(slots), "audio": audio, "lengths": count}


OUTPUTS = {
    "prefill": {"codes": (ROWS, 4)},
    "decode": {"codes": (ROWS, 4)},
    "codec": {"audio": (ROWS, 4 * 1920)},
    "encode": {},
}


@pytest.mark.parametrize("stage", OUTPUTS)
def test_stage_reads_nothing_back(stage: str) -> None:
    with blank():
        tiny = TinyModel(config()).to(DEVICE)
    counts = {"row": SLOTS, "clip": CLIPS, "page": SLOTS * config().pages}
    state = {
        tensor.name: torch.zeros(
            (counts[tensor.scope] + 1, *tensor.shape),
            dtype=getattr(torch, "float32" if tensor.dtype == "model" else tensor.dtype),
            device=DEVICE,
        )
        for tensor in host().spec.state
    }
    out = getattr(tiny, stage)(io_of(stage), state)
    assert {name: tuple(tensor.shape) for name, tensor in out.items()} == OUTPUTS[stage]


@pytest.mark.parametrize("read", [lambda x: int(x.max()), lambda x: x[x > 0], torch.nonzero])
def test_reading_back_would_be_noticed(read: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        read(torch.zeros(3, device=DEVICE))


def test_looking_at_used_pages_alone_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU computes over all pages, a CPU computes over those in use."""
    one = prompt(seed=3)
    expected = Rows(model()).speak({1: one}, 20)[0]
    whole = Rows(model())
    original = Paging.__init__

    def full_width(self: Paging, pages: torch.Tensor, *args: object, **kwargs: object) -> None:
        original(self, pages, *args, **kwargs)  # type: ignore[arg-type]
        self.pages = pages
        places = torch.arange(pages.shape[1] * kwargs["units"])  # type: ignore[operator]
        self.mask = places <= args[0][..., None]  # type: ignore[index]

    monkeypatch.setattr(Paging, "__init__", full_width)
    assert_close(whole.speak({1: one}, 20)[0], expected)
