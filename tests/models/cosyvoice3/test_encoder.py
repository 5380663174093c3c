"""The clip encoder: what the host reckons with, and means over real frames alone."""

import torch

from tests.parity.cosyvoice3.clip.rig import encoder
from voxserve.models.cosyvoice3.limits import clip_codes
from voxserve.models.cosyvoice3.speaker import segment_means, statistics

LENGTHS = (24_000, 24_001, 24_239, 24_240, 24_479, 24_480, 24_719, 24_720, 24_959, 24_960)


def test_the_host_counts_the_codes_that_the_encoder_gives() -> None:
    """Around every border of one code, its mel frames and the frames that it is heard in."""
    lengths = torch.tensor([*LENGTHS, *range(25_000, 28_800, 317)])
    with torch.inference_mode():
        out = encoder()(torch.zeros(len(lengths), 28_800), lengths)
    assert out.count.tolist() == [clip_codes(samples) for samples in lengths.tolist()]
    assert out.codes.shape == (len(lengths), 30)
    assert out.mel.shape == (len(lengths), 60, 80)
    assert out.speaker.isfinite().all()


def test_segments_hold_what_the_clip_has() -> None:
    x = torch.arange(1.0, 251.0).repeat(2, 1, 1)
    x[1, :, 130:] = 0
    means = segment_means(x, torch.tensor([250, 130]))
    assert means[0, 0, [0, 99, 100, 200, 249]].tolist() == [50.5, 50.5, 150.5, 225.5, 225.5]
    assert means[1, 0, [0, 129]].tolist() == [50.5, 115.5]


def test_statistics_leave_padding_out() -> None:
    x = torch.randn(1, 3, 20, generator=torch.Generator().manual_seed(1))
    found = statistics(x, torch.tensor([12]))[0]
    torch.testing.assert_close(found[:3], x[0, :, :12].mean(dim=1))
    torch.testing.assert_close(found[3:], x[0, :, :12].std(dim=1))
