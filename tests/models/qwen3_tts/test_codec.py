"""The codec's stream equals its one shot, for any cuts, in any rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from tests.parity.qwen3_tts.checkpoint import uniform
from tests.parity.qwen3_tts.rig import Rig, host, model
from voxserve.models.qwen3_tts.codec import Decoder

CUSTOM = "custom_voice-1b7"
FRAMES = 36
HOP = 1920


def codes_of(seed: int, frames: int = FRAMES) -> Tensor:
    noise = torch.from_numpy(uniform(f"codes{seed}", (frames, 16)))
    return ((noise + 1) * 1024).long().clamp(0, 2047)


def one_shot(codes: Tensor, dtype: str) -> Tensor:
    """Audio of all frames at once, by the module itself."""
    decoder: Decoder = model(CUSTOM, dtype).sound.decoder
    config = decoder.config
    kind = getattr(torch, dtype)
    none = torch.zeros(1, dtype=torch.int64)
    flat = torch.zeros(1, config.conv_state, dtype=kind)
    past = torch.zeros(1, *config.window_state, dtype=kind)
    with torch.inference_mode():
        out: tuple[Tensor, ...] = decoder(codes[None], flat, past, none, none + len(codes))
    assert out[1].shape == flat.shape, "the state holds what the configuration says"
    return out[0][0]


@settings(deadline=None, max_examples=5)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=30))
def test_any_cuts_equal_one_shot(sizes: list[int]) -> None:
    """Float64 to 1e-12: only the order of additions inside one product may differ. A chunk that is
    no bucket's size is padded, so this also shows that padding leaves the state alone."""
    ends = np.minimum(np.cumsum(sizes), FRAMES)
    cuts = [int(n) for n in np.diff([0, *ends, FRAMES]) if n]
    rig = Rig(host(CUSTOM), model(CUSTOM, "float64"), dtype="float64")
    keep_type(rig)
    codes = codes_of(0)
    assert_close(rig.sound(1, codes, cuts), one_shot(codes, "float64"), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("dtype", "atol"), [("float64", 1e-12), ("float32", 1e-5)])
def test_interleaved_rows_equal_each_alone(dtype: str, atol: float) -> None:
    """Four sounds in four slots, cut at random, in random company and order; then a slot is used
    again. Compared in the working type, before the stage rounds to float32."""
    rng = np.random.default_rng(1)
    rig = Rig(host(CUSTOM), model(CUSTOM, dtype), slots=4, dtype=dtype)
    audio: dict[int, list[Tensor]] = {sound: [] for sound in range(5)}
    keep_type(rig)
    place = {sound: 0 for sound in audio}
    slot_of = {0: 2, 1: 0, 2: 3, 3: 1}
    codes = {sound: codes_of(sound, 20 + 5 * sound) for sound in audio}
    while slot_of:
        company = [int(s) for s in rng.permutation(list(slot_of))[: rng.integers(1, 5)]]
        size = int(rng.integers(1, 11))
        chunks = {slot_of[s]: codes[s][place[s] : place[s] + size] for s in company}
        out = rig.chunk(chunks, {slot_of[s]: place[s] for s in company})
        for sound in company:
            part = out[slot_of[sound]]
            audio[sound].append(part)
            place[sound] += len(part) // HOP
            if place[sound] == len(codes[sound]):
                slot = slot_of.pop(sound)
                if sound == 0:
                    slot_of[4] = slot
    for sound, parts in audio.items():
        assert_close(torch.cat(parts), one_shot(codes[sound], dtype), atol=atol, rtol=0)


def keep_type(rig: Rig) -> None:
    """Let the rig's codec launches give the working type instead of float32."""
    decoder = rig.model.sound.decoder
    launch = rig.chunk

    def chunk(chunks: dict[int, Tensor], firsts: dict[int, int]) -> dict[int, Tensor]:
        seen: list[Tensor] = []
        hook = decoder.register_forward_hook(lambda module, args, out: seen.append(out[0]))
        right = launch(chunks, firsts)
        hook.remove()
        (audio,) = seen
        wide = {slot: audio[row, : len(right[slot])] for row, slot in enumerate(chunks)}
        for slot, part in wide.items():
            assert_close(part.float(), right[slot], atol=0, rtol=0)
        return wide

    rig.chunk = chunk  # type: ignore[method-assign]


def test_codes_out_of_range_are_no_crash() -> None:
    """The end code is beyond the codebooks; should it ever get here it must not read elsewhere."""
    codes = codes_of(0, 2)
    codes[1, 0] = 2150
    audio = Rig(host(CUSTOM), model(CUSTOM)).sound(0, codes, [2])
    assert audio.isfinite().all() and audio.abs().max() <= 1
