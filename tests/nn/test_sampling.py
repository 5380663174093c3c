"""Choosing codes: against a plain reference, row by row, and the noise against its definition."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from voxserve.nn.sampling import Sampling, choose, gumbel, penalise

SIZE = 40
WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """The finaliser of splitmix64 on unsigned integers."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB % WORD
    return x ^ x >> 31


def noise(seed: int, step: int, codebook: int, code: int) -> float:
    key = mix((mix((seed + GOLDEN) % WORD) + step) % WORD)
    bits = mix((key + (codebook * 2**16 + code) * GOLDEN) % WORD) >> 41
    return -math.log(-math.log((bits + 0.5) / 2**23))


def allowed(logits: list[float], temperature: float, top_k: int, top_p: float) -> list[int]:
    """The codes that may be drawn, likeliest first."""
    order = sorted(range(len(logits)), key=lambda code: -logits[code])
    if temperature == 0:
        return order[:1]
    if 0 < top_k < len(order):
        order = [code for code in order if logits[code] >= logits[order[top_k - 1]]]
    weights = [math.exp((logits[code] - logits[order[0]]) / temperature) for code in order]
    if top_p < 1:
        reached, kept = 0.0, 0
        while reached < top_p * sum(weights):
            reached, kept = reached + weights[kept], kept + 1
        order = order[:kept]
    return order


PARAMETERS = [
    (1.0, 0, 1.0),
    (1.0, -1, 1.0),
    (0.7, 5, 1.0),
    (1.3, 0, 0.8),
    (0.9, 10, 0.5),
    (0.0, 3, 0.9),
    (2.0, SIZE, 1.0),
    (2.0, 1000, 0.99),
    (1.0, 1, 1.0),
    (1.0, 0, 0.01),
]


def table(kind: int) -> Tensor:
    return torch.tensor([row[kind] for row in PARAMETERS], dtype=torch.float32)


def batch(draw: int) -> tuple[Tensor, Tensor, Tensor]:
    """(logits, seeds, steps) of a row for each of PARAMETERS."""
    generator = torch.Generator().manual_seed(draw)
    logits = torch.randn(len(PARAMETERS), SIZE, generator=generator) * 3
    logits[:, 7] = -torch.inf
    return logits, torch.arange(len(PARAMETERS)) + 100 * draw, torch.full((len(PARAMETERS),), draw)


@pytest.mark.parametrize("draw", range(20))
def test_rows_with_parameters_of_their_own_equal_the_plain_reference(draw: int) -> None:
    logits, seeds, steps = batch(draw)
    sampling = Sampling.of(table(0), table(1), table(2))
    chosen = choose(logits, sampling, gumbel(seeds, steps, range(3, 4), SIZE)[:, 0])
    for row, (temperature, top_k, top_p) in enumerate(PARAMETERS):
        values = logits[row].tolist()
        codes = allowed(values, temperature, top_k, top_p)
        lots = [noise(int(seeds[row]), draw, 3, code) for code in codes]
        drawn = [values[c] / (temperature or 1) + lot for c, lot in zip(codes, lots, strict=True)]
        assert chosen[row] == codes[drawn.index(max(drawn))]


def test_frequencies_follow_the_softmax() -> None:
    """20,000 draws; each share within 4 standard deviations of its probability."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    count = 20_000
    everything = torch.ones(count)
    sampling = Sampling.of(everything, 0 * everything, everything)
    lots = gumbel(torch.arange(count), torch.zeros(count, dtype=torch.int64), range(1), 4)[:, 0]
    drawn = choose(logits.expand(count, -1), sampling, lots).bincount(minlength=4) / count
    share = logits.softmax(0)
    assert ((drawn - share).abs() < 4 * (share * (1 - share) / count).sqrt()).all()


def test_noise_equals_its_definition() -> None:
    seeds, steps = torch.tensor([0, 1, 2**63 - 1]), torch.tensor([0, 5, 2047])
    lots = gumbel(seeds, steps, range(2, 5), 6)
    expected = [
        [[noise(seed, step, book, code) for code in range(6)] for book in range(2, 5)]
        for seed, step in zip(seeds.tolist(), steps.tolist(), strict=True)
    ]
    np.testing.assert_allclose(lots.numpy(), expected, rtol=0, atol=2e-6)


def test_noise_depends_on_seed_step_and_codebook_alone() -> None:
    seeds, steps = torch.tensor([3, 9, 3, 4]), torch.tensor([8, 1, 8, 8])
    whole = gumbel(seeds, steps, range(16), 30)
    assert torch.equal(whole[0], whole[2])
    assert torch.equal(gumbel(seeds[1:2], steps[1:2], range(16), 30)[0], whole[1])
    assert torch.equal(gumbel(seeds, steps, range(5, 6), 12)[:, 0], whole[:, 5, :12])


def test_noise_of_different_places_is_unrelated() -> None:
    """No two of the 64 draws that differ in one argument correlate (bound: 5 / sqrt(n))."""
    seeds, steps = torch.tensor([1, 2, 1, 2]), torch.tensor([1, 1, 2, 2])
    rows = gumbel(seeds, steps, range(16), 4000).flatten(0, 1)
    related = torch.corrcoef(rows.double()) - torch.eye(len(rows), dtype=torch.float64)
    assert related.abs().max() < 5 / math.sqrt(4000)
    assert rows.mean() == pytest.approx(0.5772, abs=0.02)


def test_noise_is_finite_at_its_extremes() -> None:
    lots = gumbel(torch.arange(4000), torch.zeros(4000, dtype=torch.int64), range(4), 64)
    assert lots.isfinite().all()


@pytest.mark.parametrize(
    ("logit", "said", "penalty", "expected"),
    [(2.0, True, 1.25, 1.6), (-2.0, True, 1.25, -2.5), (2.0, False, 1.25, 2.0), (2.0, True, 1, 2)],
)
def test_penalty(logit: float, said: bool, penalty: float, expected: float) -> None:
    result = penalise(torch.tensor([[logit]]), torch.tensor([[said]]), torch.tensor([penalty]))
    assert result.item() == pytest.approx(expected)


def test_ties_at_the_edge_of_top_k_stay() -> None:
    logits = torch.tensor([[1.0, 3.0, 1.0, 1.0, 0.0]]).expand(200, -1)
    ones = torch.ones(200)
    lots = gumbel(torch.arange(200), torch.zeros(200, dtype=torch.int64), range(1), 5)[:, 0]
    assert set(choose(logits, Sampling.of(ones, 2 * ones, ones), lots).tolist()) == {0, 1, 2, 3}


def test_one_broken_row_hurts_no_other_and_stays_in_range() -> None:
    logits, seeds, steps = batch(0)
    sampling = Sampling.of(table(0), table(1), table(2))
    lots = gumbel(seeds, steps, range(1), SIZE)[:, 0]
    whole = choose(logits, sampling, lots)
    logits[4] = torch.nan
    broken = choose(logits, sampling, lots)
    assert 0 <= int(broken[4]) < SIZE
    assert torch.equal(broken[:4], whole[:4]) and torch.equal(broken[5:], whole[5:])
