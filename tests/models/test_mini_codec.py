"""The codec of mini: any cuts and any company give the same sound."""

import pytest
import torch

from tests.models.mini_rows import Rows, cuts, small


def frames(seed: int, count: int = 23) -> torch.Tensor:
    return torch.randint(0, 625, (count, 6), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("sizes", [(1,), (2, 4, 10), (10,), (3, 1, 7)])
def test_streaming_equals_whole(sizes: tuple[int, ...]) -> None:
    codes = frames(1)
    whole = Rows(small()).decode({2: codes}, 0, len(codes))
    rows = Rows(small())
    parts = [rows.decode({2: codes}, first, count) for first, count in cuts(len(codes), sizes)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_a_padded_chunk_leaves_the_state_of_its_real_frames() -> None:
    codes = frames(2)
    whole = Rows(small()).decode({1: codes}, 0, len(codes))
    rows = Rows(small())
    parts = [
        rows.decode({1: codes}, first, count, room=10)
        for first, count in cuts(len(codes), (2, 4, 10))
    ]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_rows_do_not_hear_each_other() -> None:
    three = {0: frames(3), 1: frames(4), 3: frames(5)}
    together = Rows(small()).decode(three, 0, 23)
    for row, (slot, codes) in enumerate(three.items()):
        alone = Rows(small()).decode({slot: codes}, 0, 23)
        torch.testing.assert_close(together[row : row + 1], alone)


def test_every_code_is_four_digits_of_five_levels() -> None:
    codec = small().codec_net
    digits = codec._digits(torch.arange(625).view(1, 625, 1).expand(-1, -1, 6))
    assert digits.shape == (1, 625, 24)
    assert torch.unique(digits).tolist() == [-1, -0.5, 0, 0.5, 1]
    assert len(torch.unique(digits[0, :, :4], dim=0)) == 625
