"""The search for a threshold chooses what sorting does; the next input comes with the code."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels.rig import DEVICE
from voxserve.kernels.choose import Draw, Talk, choose
from voxserve.kernels.stream import new_stream, reference_stream
from voxserve.nn import sampling as plain

BOOKS, SLOTS, CONTROL, END = 3, 6, 40, 150
COLUMNS = 8


@dataclass(frozen=True)
class Case:
    """Temperature, top-k and top-p of both kinds of codebook, penalty, steps before the end."""

    temperature: float = 0.9
    top_k: float = 50
    top_p: float = 1.0
    penalty: float = 1.0
    least: float = 0.0


CASES = {
    "plain": Case(),
    "greedy": Case(temperature=0.0),
    "narrow": Case(top_k=1, temperature=1.7),
    "all": Case(top_k=0),
    "more than there are": Case(top_k=1000),
    "nucleus": Case(top_k=-1, top_p=0.6),
    "both": Case(top_k=20, top_p=0.7, temperature=1.3),
    "tiny nucleus": Case(top_p=1e-3),
    "shy": Case(penalty=1.6, least=4.0),
    "eager": Case(penalty=0.6, top_p=0.95),
}


def parameters(case: Case) -> Tensor:
    first = [case.temperature, case.top_k, case.top_p, case.penalty, case.least]
    return torch.tensor([*first, case.temperature, case.top_k, case.top_p]).repeat(SLOTS + 1, 1)


def expected(
    logits: Tensor, draw: Draw, book: int, said: Tensor, mute: Tensor, case: Case
) -> Tensor:
    """As the plain steps of the model choose."""
    values = draw.sampling[draw.slots]
    at = 5 if book else 0
    of = plain.Sampling.of(values[:, at], values[:, at + 1], values[:, at + 2])
    noise = plain.gumbel(draw.seeds[draw.slots], draw.steps, range(BOOKS), logits.shape[1])
    if book == 0:
        logits = plain.penalise(logits, said[draw.slots], values[:, 3])
        quiet = (draw.steps < values[:, 4]) | mute[draw.slots]
        end = torch.where(quiet, -torch.inf, logits[:, END])
        logits[:, -CONTROL:] = -torch.inf
        logits[:, END] = end
    return plain.choose(logits, of, noise[:, book])


@pytest.mark.parametrize("codes", [200, 256])
@pytest.mark.parametrize("book", [0, 2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_codes_are_those_of_a_sort(case: Case, book: int, codes: int) -> None:
    """Also with many ties: logits are rounded, so that the k-th has equals."""
    generator = torch.Generator().manual_seed(book + codes)
    logits = (torch.randn(4, codes, generator=generator) * 3).round(decimals=1).to(DEVICE)
    logits[0, END] = 9.0
    on: dict[str, Any] = {"device": DEVICE}
    said = (torch.rand(SLOTS + 1, codes, generator=generator) < 0.5).to(DEVICE)
    mute = torch.tensor([False, True, False, False, False, True, False], **on)
    draw = Draw(
        torch.tensor([3, 0, 5, 2], **on),
        torch.tensor([0, 4, 3, 100000], **on),
        parameters(case).to(DEVICE),
        torch.randint(-(2**62), 2**62, (SLOTS + 1,), generator=generator).to(DEVICE),
        torch.zeros(4, BOOKS, dtype=torch.int64, **on),
        torch.zeros(SLOTS + 1, BOOKS, dtype=torch.int64, **on),
    )
    wanted = expected(logits.clone(), draw, book, said.clone(), mute, case)
    before = said.clone()
    talk = Talk(said, mute, 3, 4, END, CONTROL) if book == 0 else None
    table, gain = torch.randn(codes, 32, generator=generator).to(DEVICE), torch.rand(32, **on)
    out = new_stream(4, 32, 1, table)
    choose(logits, draw, book, 5 if book else 0, talk=talk, table=table, gain=gain, out=out)
    assert draw.codes[:, book].tolist() == wanted.tolist()
    assert draw.kept[draw.slots, book].tolist() == wanted.tolist()
    if book == 0:
        before[draw.slots, wanted] = True
    assert torch.equal(said, before)
    stream = reference_stream(table[wanted], gain, 1, table.dtype)
    assert torch.equal(out.residual[:4], stream.residual)
    torch.testing.assert_close(out.x[:4], stream.x)
    torch.testing.assert_close(out.squares[:4], stream.squares)


def test_several_codebooks_at_once() -> None:
    """Each with its own noise, whatever is forbidden in one of them."""
    generator = torch.Generator().manual_seed(4)
    logits = (torch.randn(2, BOOKS, 200, generator=generator) * 3).to(DEVICE)
    logits[0, 0, 7] = -torch.inf
    draw = Draw(
        torch.tensor([3, 0], device=DEVICE),
        torch.tensor([0, 4], device=DEVICE),
        parameters(CASES["both"]).to(DEVICE),
        torch.randint(-(2**62), 2**62, (SLOTS + 1,), generator=generator).to(DEVICE),
        torch.zeros(2, BOOKS, dtype=torch.int64, device=DEVICE),
        torch.zeros(SLOTS + 1, BOOKS, dtype=torch.int64, device=DEVICE),
    )
    choose(logits.flatten(1), draw, 0, 0, books=BOOKS)
    values = draw.sampling[draw.slots]
    of = plain.Sampling.of(values[:, 0], values[:, 1], values[:, 2])
    noise = plain.gumbel(draw.seeds[draw.slots], draw.steps, range(BOOKS), 200)
    wanted = [plain.choose(logits[:, book], of, noise[:, book]) for book in range(BOOKS)]
    assert torch.equal(draw.codes, torch.stack(wanted, dim=1))
    assert torch.equal(draw.kept[draw.slots], draw.codes)
