"""Residual vector quantisation, both ways."""

import torch
from torch.testing import assert_close

from voxserve.nn.rvq import centroids, rvq_decode, rvq_encode


def books(count: int, size: int, width: int) -> torch.Tensor:
    """Each book half as large as the one before, so that encoding finds its way back."""
    generator = torch.Generator().manual_seed(1)
    scale = 0.5 ** torch.arange(count)[:, None, None]
    return torch.randn(count, size, width, generator=generator) * scale * 4


def test_decoding_sums_the_vectors_of_all_books() -> None:
    tables = books(3, 10, 4)
    codes = torch.tensor([[[0, 9, 5], [3, 3, 3]]])
    out = rvq_decode(codes, tables)
    assert_close(out[0, 0], tables[0, 0] + tables[1, 9] + tables[2, 5])
    assert_close(out[0, 1], tables[0, 3] + tables[1, 3] + tables[2, 3])


def test_encoding_takes_the_nearest_vector_of_what_is_left() -> None:
    tables = books(4, 20, 3)
    x = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(2))
    codes = rvq_encode(x, tables)
    for row in range(2):
        for frame in range(6):
            left = x[row, frame]
            for book, code in enumerate(codes[row, frame].tolist()):
                distances = (tables[book] - left).norm(dim=1)
                assert code == int(distances.argmin())
                left = left - tables[book, code]
            assert_close(x[row, frame] - left, rvq_decode(codes, tables)[row, frame])


def test_centroids_are_means_and_unused_ones_stay_finite() -> None:
    out = centroids(torch.tensor([[4.0, 2.0], [1e-6, 0.0]]), torch.tensor([2.0, 0.0]))
    assert_close(out, torch.tensor([[2.0, 1.0], [0.1, 0.0]]))
