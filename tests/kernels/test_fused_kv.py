"""CosyVoice 3's decode steps on the kernel write and see what plain torch does."""

import pytest
import torch
from torch.testing import assert_close

from tests.kernels.rig import ATOL, DEVICE, noise
from voxserve.models.cosyvoice3.fused_kv import FusedKv
from voxserve.nn.attention import PagedKv, Paging

UNITS, SPARE = 16, 6


@pytest.mark.parametrize("fresh", [True, False])
def test_equals_the_gathering_form(fresh: bool) -> None:
    """Two rows and one of padding; a prefill of nine positions, or one step behind others."""
    steps = 9 if fresh else 1
    first = torch.tensor([0, 0, 0]) if fresh else torch.tensor([20, 3, 0])
    positions = (first[:, None] + torch.arange(steps)).to(DEVICE)
    valid = torch.tensor([True, True, False], device=DEVICE)[:, None].expand(-1, steps)
    tables = torch.tensor([[4, 1], [0, 3], [SPARE, SPARE]], device=DEVICE)
    paging = Paging(tables, positions, valid, units=UNITS, spare=SPARE, fresh=fresh)
    queries, keys, values = (noise((3, steps, h, 64), seed=h) for h in (14, 2, 2))
    caches = [noise((SPARE + 1, 2, UNITS, 2, 64)) for _ in range(2)]
    kinds = zip((PagedKv, FusedKv), caches, strict=True)
    plain, fused = (kind(cache, paging)(queries, keys, values) for kind, cache in kinds)
    assert_close(fused[:2], plain[:2], atol=ATOL, rtol=ATOL)
    assert torch.equal(caches[0], caches[1])
