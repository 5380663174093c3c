"""What begins and continues the residual stream."""

from typing import Any

import torch

from tests.kernels.rig import ATOL, DEVICE, noise
from voxserve.kernels.linear import linear, reference_linear
from voxserve.kernels.stream import (
    Stream,
    add,
    embed_frames,
    enter,
    padded,
    parts_of,
    reference_frames,
    reference_scale,
    reference_stream,
    swiglu,
)
from voxserve.kernels.tiles import fixed_tiles

EPS = 1e-6


def equal(got: Stream, wanted: Stream, rows: int) -> None:
    """Within the first rows; what fills up is zero."""
    for mine, theirs in (
        (got.x, wanted.x),
        (got.residual, wanted.residual),
        (got.squares.sum(1), wanted.squares.sum(1)),
    ):
        torch.testing.assert_close(mine[:rows], theirs[:rows], atol=ATOL, rtol=ATOL)
        assert not mine[rows:].any()


def test_a_frame_and_a_word() -> None:
    table, text, gain = noise((60, 1024)), noise((9, 1024)), noise((1024,), 0.3) + 1
    on: dict[str, Any] = {"device": DEVICE}
    starts = torch.tensor([0, 20, 40], **on)
    codes = torch.tensor([[3, 0, 19], [1, 1, 1], [0, 7, 2]], **on)
    slots, words = torch.tensor([2, 0], **on), torch.tensor([[8], [-1]], **on)
    got = embed_frames(codes, slots, words, table, starts, text, gain)
    residual = reference_frames(codes, slots, words[:, 0], table, starts, text)
    equal(got, reference_stream(residual, gain, 2, table.dtype), 2)
    assert len(got.x) == padded(2) == 16


def test_entering_with_and_without_a_norm() -> None:
    y, gain = noise((16, 64), 2.0), noise((64,), 0.3) + 1
    equal(enter(y, gain, 16, None, EPS), reference_stream(y.float(), gain, 1, y.dtype), 16)
    before = reference_stream(y.float(), torch.ones_like(gain), 4, y.dtype)
    normed = y.float() * reference_scale(before, EPS)
    got = enter(y, gain, 3, before.squares, EPS)
    equal(got, reference_stream(normed, gain, 1, y.dtype), 3)


def test_a_branch_and_the_gated_product() -> None:
    start, gain = noise((16, 64), 2.0).float(), noise((64,), 0.3) + 1
    branch = noise((16, 64), seed=5)
    stream = reference_stream(start, gain, 2, branch.dtype)
    wanted_stream = reference_stream(start + branch.float(), gain, 1, branch.dtype)
    got = add(branch, stream, gain)
    equal(got, wanted_stream, 16)
    y = noise((16, 192))
    gate, up = (y.float() * reference_scale(got, EPS)).chunk(2, dim=1)
    wanted = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(swiglu(y, got, EPS).float(), wanted, atol=ATOL, rtol=ATOL)


def test_a_width_that_is_no_power_of_two() -> None:
    """Parts then are as wide as divides it, and may be any number; 2560 columns are five."""
    assert [parts_of(hidden) for hidden in (64, 96, 1024, 2560)] == [1, 3, 2, 5]
    y, gain = noise((16, 96), 2.0), noise((96,), 0.3) + 1
    before = reference_stream(y.float(), torch.ones_like(gain), 3, y.dtype)
    normed = y.float() * reference_scale(before, EPS)
    got = enter(y, gain, 16, before.squares, EPS)
    equal(got, reference_stream(normed, gain, 3, y.dtype), 16)
    product = noise((16, 64))
    gate, up = (product.float() * reference_scale(got, EPS)).chunk(2, dim=1)
    wanted = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(swiglu(product, got, EPS).float(), wanted, atol=ATOL, rtol=ATOL)
    weight = noise((64, 96))
    scaled = linear(got.x, weight, squares=got.squares, eps=EPS, dtype=torch.float32)
    wanted = reference_linear(got.x, weight, scale=reference_scale(got, EPS))
    torch.testing.assert_close(scaled, wanted, atol=10 * ATOL, rtol=ATOL)


def test_rows_are_filled_up() -> None:
    """To powers of two, from 64 on to multiples of 64; fixed tiles to whole ones."""
    counts = (1, 17, 64, 65, 96, 129, 200, 256, 320)
    assert [padded(rows) for rows in counts] == [16, 32, 64, 128, 128, 192, 256, 256, 320]
    with fixed_tiles():
        assert [padded(rows) for rows in counts] == [64, 64, 64, 128, 128, 192, 256, 256, 320]
