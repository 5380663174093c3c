"""The codec of tiny: any cuts equal one shot, rows do not touch each other, padding is nothing."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from tests.models import tiny_reference as reference
from tests.models.tiny_rows import Rows, config, model
from voxserve.models.tiny.codec import Codec
from voxserve.models.tiny.config import codec_state
from voxserve.models.tiny.stages import TinyModel
from voxserve.nn.causal_conv import CausalConv1d, CausalConvTranspose1d

FRAMES = 37
CUTS = [[37], [1, 2, 4, 10, 10, 10], [10, 10, 10, 7], [1] * 37, [4, 10, 1, 10, 2, 10], [20, 17]]
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
"""Sums in another order; audio is of size 1."""


@cache
def tiny(dtype: str) -> TinyModel:
    return model(dtype)


def codes_of(seed: int, frames: int = FRAMES) -> Tensor:
    shape = (frames, config().codebooks)
    return torch.randint(config().codes, shape, generator=torch.Generator().manual_seed(seed))


@cache
def reference_audio(dtype: str, seed: int) -> Tensor:
    return reference.decode(tiny(dtype).state_dict(), config(), codes_of(seed).numpy())


def check_cuts(
    dtype: str, cuts: Sequence[int], after: Callable[[Rows], None] = lambda rows: None
) -> None:
    """One stream in chunks of `cuts` frames against the reference's one shot.

    The stage returns float32, whose rounding of values up to 1 is below 1e-7; in float64 both are
    therefore compared before that rounding.
    """
    rows = Rows(tiny(dtype), dtype)
    given: list[Tensor] = []
    hook = rows.tiny.codec_net.register_forward_hook(lambda _, __, out: given.append(out[0]))
    first, codes = 0, codes_of(1)
    for count in cuts:
        rows.audio(codes[None, first : first + count], [2], [first])
        after(rows)
        first += count
    hook.remove()
    assert_close(torch.cat(given), reference_audio(dtype, 1), rtol=0, atol=TOLERANCE[dtype])


def check(audio: Tensor, seed: int) -> None:
    """The stage's own float32 output against the beginning of the reference's audio."""
    expected = reference_audio("float64", seed)[: len(audio)].float()
    assert_close(audio, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_chosen_cuts_equal_one_shot(dtype: str, cuts: list[int]) -> None:
    check_cuts(dtype, cuts)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.sets(st.integers(1, FRAMES - 1)))
def test_any_cuts_equal_one_shot(edges: set[int]) -> None:
    bounds = [0, *sorted(edges), FRAMES]
    check_cuts("float64", [end - begin for begin, end in pairwise(bounds)])


@pytest.mark.parametrize("name", codec_state(config().codec))
def test_a_lost_state_tensor_is_noticed(name: str) -> None:
    def lose(rows: Rows) -> None:
        rows.state[f"codec.{name}"].zero_()

    with pytest.raises(AssertionError):
        check_cuts("float64", CUTS[2], lose)


@pytest.mark.parametrize("frequency", range(8))
def test_a_lost_rotary_frequency_is_noticed(frequency: int) -> None:
    rope = tiny("float64").codec_net.rope
    kept = rope.frequencies.clone()
    rope.frequencies[frequency] = 0
    try:
        with pytest.raises(AssertionError):
            check_cuts("float64", CUTS[0])
    finally:
        rope.frequencies.copy_(kept)


def test_declared_state_is_what_the_layers_keep() -> None:
    """In the order of the layers; the transformer's windows are no layers of their own."""
    net = Codec(config().codec, config().codebooks, config().codes)
    streaming = (CausalConv1d, CausalConvTranspose1d)
    kept = [layer.state_shape for layer in net.modules() if isinstance(layer, streaming)]
    shapes = codec_state(config().codec).items()
    assert [shape for name, shape in shapes if not name.startswith("window")] == kept


def test_interleaved_rows_equal_each_alone() -> None:
    """Three streams in changing batches; each row is at a place of its own."""
    rows = Rows(tiny("float64"))
    begins, parts = {4: 0, 0: 1, 2: 3}, {slot: list[Tensor]() for slot in (4, 0, 2)}
    sizes = [1, 2, 4, 10, 10, 4, 2, 2, 2]
    for turn in range(len(sizes) + 3):
        ready: dict[int, list[int]] = {}
        for slot, begin in begins.items():
            if begin <= turn < begin + len(sizes):
                ready.setdefault(sizes[turn - begin], []).append(slot)
        for count, slots in ready.items():
            slots.sort(key=lambda slot: (slot * turn) % 5)
            first = [sum(sizes[: turn - begins[slot]]) for slot in slots]
            codes = [codes_of(slot)[f : f + count] for slot, f in zip(slots, first, strict=True)]
            decoded = rows.audio(torch.stack(codes), slots, first)
            for slot, audio in zip(slots, decoded, strict=True):
                parts[slot].append(audio)
    for slot, audio in parts.items():
        check(torch.cat(audio), slot)


def test_a_reused_slot_is_clean() -> None:
    rows = Rows(tiny("float64"))
    rows.stream(codes_of(9), 2, CUTS[1])
    check(rows.stream(codes_of(1), 2, CUTS[2]), 1)


def test_a_reused_slot_without_the_fresh_flag_is_noticed() -> None:
    rows = Rows(tiny("float64"))
    rows.stream(codes_of(9), 2, CUTS[1])
    first = rows.audio(codes_of(1)[None, :10], [2], [FRAMES])[0]
    second = rows.audio(codes_of(1)[None, 10:], [2], [FRAMES + 10])[0]
    with pytest.raises(AssertionError):
        check(torch.cat((first, second)), 1)


@pytest.mark.parametrize("pad", [1, 3])
def test_padding_rows_change_nothing(pad: int) -> None:
    rows = Rows(tiny("float64"))
    neighbour = rows.audio(codes_of(9)[None, :10], [3], [0])[0]
    first = rows.audio(codes_of(1)[None, :10], [0], [0], pad=pad)[0]
    second = rows.audio(codes_of(1)[None, 10:], [0], [10], pad=pad)[0]
    rest = rows.audio(codes_of(9)[None, 10:], [3], [10])[0]
    check(torch.cat((first, second)), 1)
    check(torch.cat((neighbour, rest)), 9)


def test_padding_frames_change_nothing() -> None:
    """Rows of one batch may have fewer frames than the bucket; their next chunk goes on behind."""
    rows = Rows(tiny("float64"))
    codes = torch.stack([codes_of(1)[:10], codes_of(9)[:10]])
    codes[1, 3:] = -1
    audio = rows.audio(codes, [0, 1], [0, 0], lengths=[10, 3])
    samples = config().codec.samples_per_frame
    rest = rows.audio(codes_of(9)[None, 3:], [1], [3])[0]
    check(audio[0], 1)
    check(torch.cat((audio[1, : 3 * samples], rest)), 9)


def test_audio_is_loud_enough_and_not_clipped() -> None:
    audio = reference_audio("float64", 1)
    assert len(audio) == FRAMES * 1920
    assert 0.02 < audio.square().mean().sqrt() < 0.4
    assert (audio.abs() >= 1).float().mean() < 0.001
