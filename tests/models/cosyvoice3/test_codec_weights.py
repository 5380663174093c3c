"""Loading flow.pt and hift.pt: strict about names, exact in what is precomputed."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from tests.models.cosyvoice3.sound import folder
from tests.models.cosyvoice3.sound_checkpoint import (
    SMALL_FLOW,
    SMALL_VOCODER,
    flow_tensors,
    hift_tensors,
)
from voxserve.errors import CheckpointError
from voxserve.models.cosyvoice3.codec_weights import load_flow, load_vocoder
from voxserve.models.cosyvoice3.weight_norm import UpsampleConv

FLOAT32 = torch.float32


@pytest.mark.parametrize("change", ["missing", "unexpected", "of another shape"])
def test_wrong_tensors_are_named(tmp_path: Path, change: str) -> None:
    for file, tensors, name in (
        ("flow.pt", flow_tensors(SMALL_FLOW), "decoder.estimator.proj_out.weight"),
        ("hift.pt", hift_tensors(SMALL_VOCODER), "ups.1.parametrizations.weight.original1"),
    ):
        value = tensors[name]
        if change == "missing":
            del tensors[name]
        elif change == "unexpected":
            name = "more.weight"
            tensors[name] = value
        else:
            tensors[name] = value[:-1]
        torch.save(tensors, tmp_path / file)
        with pytest.raises(CheckpointError, match=rf"1 {change}: {name}"):
            if file == "flow.pt":
                load_flow(tmp_path, SMALL_FLOW, "cpu", FLOAT32)
            else:
                load_vocoder(tmp_path, SMALL_VOCODER, "cpu", FLOAT32)


def test_the_prefix_of_training_is_taken_off(tmp_path: Path) -> None:
    torch.save(hift_tensors(SMALL_VOCODER), tmp_path / "hift.pt")
    plain = load_vocoder(tmp_path, SMALL_VOCODER, "cpu", FLOAT32)
    prefixed = load_vocoder(folder(), SMALL_VOCODER, "cpu", FLOAT32)
    assert_close(plain.ups[0].weight, prefixed.ups[0].weight, atol=0, rtol=0)


def test_weight_norms_are_folded() -> None:
    """Against torch's own parametrisation; a repeated column gives what the folded one does."""
    stored = hift_tensors(SMALL_VOCODER)
    direction = stored["ups.2.parametrizations.weight.original1"]
    length = stored["ups.2.parametrizations.weight.original0"]
    weight = torch._weight_norm(direction, length, 0)
    x = torch.randn(1, direction.shape[1], 9, generator=torch.Generator().manual_seed(0))
    repeated = torch.nn.functional.pad(x.repeat_interleave(3, dim=2), (6, 0))
    bias = stored["ups.2.bias"]
    expected = torch.nn.functional.conv1d(repeated, weight, bias)
    up = load_vocoder(folder(), SMALL_VOCODER, "cpu", FLOAT32).ups[2]
    assert isinstance(up, UpsampleConv)
    out, _ = up(x, torch.zeros(1, *up.state_shape), torch.tensor([9]))
    assert_close(out, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_must_stay_wide(dtype: torch.dtype) -> None:
    """Tables of the solver's times are made before the weights are narrowed."""
    flow = load_flow(folder(), SMALL_FLOW, "cpu", dtype)
    exact = load_flow(folder(), SMALL_FLOW, "cpu", FLOAT32)
    estimator = flow.decoder.estimator
    assert flow.noise.dtype == estimator.rotary_embed.inv_freq.dtype == FLOAT32
    table = exact.decoder.estimator.norm_out.table
    assert_close(estimator.norm_out.table, table.to(dtype), atol=0, rtol=0)
    vocoder = load_vocoder(folder(), SMALL_VOCODER, "cpu", dtype)
    assert vocoder.m_source.noise.dtype == vocoder.spectrum.forth.dtype == FLOAT32
    assert not any(parameter.requires_grad for parameter in vocoder.parameters())
    assert not any(parameter.requires_grad for parameter in flow.parameters())


def test_dummy_weights_speak() -> None:
    """Random weights of the real layout give finite rotations and a voiced tone."""
    flow = load_flow(None, SMALL_FLOW, "cpu", FLOAT32)
    loaded = load_flow(folder(), SMALL_FLOW, "cpu", FLOAT32)
    rates = loaded.decoder.estimator.rotary_embed.inv_freq
    assert_close(flow.decoder.estimator.rotary_embed.inv_freq, rates, atol=0, rtol=0)
    vocoder = load_vocoder(None, SMALL_VOCODER, "cpu", FLOAT32)
    mel = torch.zeros(1, 4, 80)
    state = torch.zeros(1, 512, dtype=torch.float64)
    with torch.inference_mode():
        f0, _ = vocoder.f0_predictor(mel, state, torch.tensor([4]))
    assert (f0 > SMALL_VOCODER.voiced).all() and f0.isfinite().all()
