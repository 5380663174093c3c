"""Qwen3-TTS's codec out of fused kernels equals its reference, chunk by chunk, in any company.

On a CPU in Triton's interpreter, float32 and small codecs that have every kind of layer; on a GPU
(`gpu`) at full size.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.kernels.rig import DEVICE
from voxserve.kernels.tiles import fixed_tiles, on_sms, sms
from voxserve.kernels.window_attention import StepRows
from voxserve.models.qwen3_tts.codec import Decoder
from voxserve.models.qwen3_tts.config import CodecDecoder, Transformer
from voxserve.models.qwen3_tts.fused_codec import FusedDecoder
from voxserve.models.qwen3_tts.published import CODEC

SMALL = CodecDecoder(
    body=Transformer(64, 128, 2, 2, 2, 32, eps=1e-5, theta=10_000.0),
    codebooks=3,
    codes=16,
    code_width=64,
    latent=64,
    window=8,
    width=192,
    rates=(3,),
    early_rates=(2, 2),
)
DEEP = replace(SMALL, width=768, rates=(3, 2, 2), early_rates=(2,))
"""Has units that are fused, of both sizes, and units that are not."""
FULL = CodecDecoder.read(CODEC["decoder_config"])
SLOTS = 5
EXACT = 2e-5 if DEVICE == "cpu" else 2e-3  # products of float32 are TF32 on a GPU
"""Relative error in float32. Random layers amplify rounding: the reference's own is 1e-5."""


def decoder_of(config: CodecDecoder, dtype: torch.dtype) -> Decoder:
    """Random weights that keep every layer's output about as large as its input."""
    decoder = Decoder(config).requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for name, value in decoder.named_parameters():
        noise = torch.randn(value.shape, generator=generator).bfloat16()
        if name.endswith(("usage", "norm.weight", "gamma", "scale")):
            value.copy_(1 + 0.1 * noise)
        elif value.dim() == 1:
            value.copy_(0.1 * noise)
        else:
            size = 1.0 if "embedding" in name else 0.5 * value[0].numel() ** -0.5
            value.copy_(noise * (0.02 if value.shape[0] == 1 else size))  # the last: no clipping
    decoder.finish()
    angles = decoder.pre_transformer.rope.frequencies.to(DEVICE)
    decoder.to(DEVICE, dtype).pre_transformer.rope.frequencies = angles  # float32 in every model
    return decoder


class Fused:
    """A fused decoder with its slots; every row of a chunk is a sound, told by its slot."""

    def __init__(self, decoder: Decoder, dtype: torch.dtype) -> None:
        config = decoder.config
        self.decoder = FusedDecoder(decoder)
        self.conv = torch.randn(SLOTS + 1, config.conv_state).to(DEVICE, dtype)
        self.window = torch.randn(SLOTS + 1, *config.window_state).to(DEVICE, dtype)
        self.seen = torch.full((SLOTS + 1,), 3, device=DEVICE)

    def chunk(
        self, slots: list[int], codes: Tensor, lengths: list[int], fresh: list[bool]
    ) -> Tensor:
        """codes [B, F, K] -> audio [B, F * samples_per_frame]."""
        rows = StepRows(
            torch.tensor(slots, device=DEVICE),
            torch.tensor(lengths, device=DEVICE),
            torch.tensor(fresh, device=DEVICE),
            self.seen,
        )
        with torch.inference_mode():
            return self.decoder.decode(codes, rows, self.conv, self.window)


@pytest.fixture
def large_tiles() -> Iterator[None]:
    """As on a GPU of few SMs: the interpreter's time goes by the number of tiles."""
    with on_sms(4 if DEVICE == "cpu" else sms()):
        yield


def codes_of(config: CodecDecoder, sound: int, frames: int) -> Tensor:
    generator = torch.Generator().manual_seed(sound)
    shape = (1, frames, config.codebooks)
    return torch.randint(config.codes, shape, generator=generator).to(DEVICE)


def one_shot(decoder: Decoder, codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Audio [B, F * samples_per_frame] by the reference, and its state behind it."""
    config, kind = decoder.config, decoder.pre_conv.conv.weight.dtype
    count, frames = codes.shape[:2]
    flat = torch.zeros(count, config.conv_state, device=DEVICE, dtype=kind)
    past = torch.zeros(count, *config.window_state, device=DEVICE, dtype=kind)
    none = torch.zeros(count, dtype=torch.int64, device=DEVICE)
    with torch.inference_mode():
        audio, flat, past = decoder(codes, flat, past, none, none + frames)
    return audio, flat, past


def error(audio: Tensor, exact: Tensor) -> float:
    return float((audio - exact).norm() / exact.norm())


@pytest.fixture(scope="module")
def small() -> Decoder:
    return decoder_of(SMALL, torch.float32)


@pytest.mark.usefixtures("large_tiles")
def test_interleaved_streams_equal_one_shot(small: Decoder) -> None:
    """Two sounds, the second begun later, in slots that held something else, among rows of padding;
    the last chunk short."""
    fused, slots, hop = Fused(small, torch.float32), {0: 2, 1: 4}, SMALL.samples_per_frame
    codes = {0: codes_of(SMALL, 0, 5), 1: codes_of(SMALL, 1, 2)}
    heard: dict[int, list[Tensor]] = {0: [], 1: []}
    for company, first, padding in (([0], [0], 0), ([1, 0], [0, 2], 0), ([0], [4], 2)):
        parts = [codes[s][:, at : at + 2] for s, at in zip(company, first, strict=True)]
        lengths = [part.shape[1] for part in parts]
        parts = [functional.pad(part, (0, 0, 0, 2 - part.shape[1])) for part in parts]
        out = fused.chunk(
            [slots[s] for s in company] + [SLOTS] * padding,
            torch.cat([*parts, *parts[:1] * padding]),
            lengths + lengths[:1] * padding,
            [at == 0 for at in (*first, *first[:1] * padding)],
        )
        for row, sound in enumerate(company):
            heard[sound].append(out[row, : lengths[row] * hop])
    for sound, pieces in heard.items():
        whole = one_shot(small, codes[sound])[0][0]
        assert 0.1 < whole.abs().max() < 1
        assert error(torch.cat(pieces), whole) < EXACT
    assert fused.seen[[2, 4, 0]].tolist() == [5, 2, 3]


@pytest.mark.usefixtures("large_tiles")
def test_goes_on_from_the_references_state() -> None:
    """Voices brought behind a clip by the reference, before the ring's end and behind it."""
    deep, behind = decoder_of(DEEP, torch.float32), (3, 11)
    fused, codes = Fused(deep, torch.float32), [codes_of(DEEP, n, n + 1) for n in behind]
    for slot, frames in enumerate(behind):
        _, conv, window = one_shot(deep, codes[slot][:, :frames])
        state = fused.decoder.from_reference(conv, window, torch.tensor([frames], device=DEVICE))
        fused.conv[slot], fused.window[slot], fused.seen[slot] = state[0][0], state[1][0], frames
    last = torch.cat([codes[slot][:, frames:] for slot, frames in enumerate(behind)])
    out = fused.chunk([0, 1], last, [1, 1], [False, False])
    for row, frames in enumerate(behind):
        whole = one_shot(deep, codes[row])[0][0]
        assert 0.1 < whole.abs().max() < 1
        assert error(out[row], whole[frames * DEEP.samples_per_frame :]) < EXACT


def test_says_what_sizes_it_has() -> None:
    with pytest.raises(ValueError, match="the last width is 48"):
        FusedDecoder(Decoder(replace(SMALL, width=96)))
    with pytest.raises(ValueError, match="multiples of 64"):
        FusedDecoder(Decoder(replace(SMALL, latent=80)))


@pytest.fixture(scope="module")
def full() -> Decoder:
    return decoder_of(FULL, torch.bfloat16)


@pytest.mark.gpu
def test_full_size_is_as_exact_as_eager(full: Decoder) -> None:
    """Two streamed chunks in bfloat16 against float32: no further off than torch's own layers."""
    codes = torch.cat([codes_of(FULL, sound, 20) for sound in (0, 1)])
    exact = one_shot(decoder_of(FULL, torch.float32), codes)[0]
    eager = one_shot(full, codes)[0].float()
    fused = Fused(full, torch.bfloat16)
    parts = [fused.chunk([1, 3], codes[:, at : at + 10], [10, 10], [at == 0] * 2) for at in (0, 10)]
    assert error(torch.cat(parts, dim=1), exact) < 1.1 * error(eager, exact)


@pytest.mark.gpu
def test_fixed_tiles_give_the_same_bits_alone_and_in_a_batch(full: Decoder) -> None:
    codes = torch.cat([codes_of(FULL, sound, 4) for sound in range(SLOTS)])
    fused, alone = Fused(full, torch.bfloat16), Fused(full, torch.bfloat16)
    with fixed_tiles():
        for fresh in (True, False):
            whole = fused.chunk([*range(SLOTS)], codes, [4] * SLOTS, [fresh] * SLOTS)
            for slot in range(SLOTS):
                with on_sms(32):
                    one = alone.chunk([slot], codes[slot : slot + 1], [4], [fresh])
                assert torch.equal(one[0], whole[slot])


@pytest.mark.gpu
@pytest.mark.parametrize("fixed", [False, True], ids=["tuned", "fixed"])
def test_a_chunk_is_the_same_every_time(full: Decoder, fixed: bool) -> None:
    """Whatever a kernel overwrites too soon shows in some run: small batches and tall tiles."""
    fused = Fused(full, torch.bfloat16)
    for frames in (1, 10):
        codes = torch.cat([codes_of(FULL, sound, frames) for sound in range(SLOTS)])
        for count in (32, sms()):
            with fixed_tiles(fixed), on_sms(count):
                every = [
                    fused.chunk([*range(SLOTS)], codes, [frames] * SLOTS, [True] * SLOTS)
                    for _ in range(20)
                ]
            assert all(torch.equal(one, every[0]) for one in every)


@pytest.mark.gpu
def test_replay_equals_eager(full: Decoder) -> None:
    codes = codes_of(FULL, 0, 2)
    fused, other = Fused(full, torch.bfloat16), Fused(full, torch.bfloat16)
    other.window.copy_(fused.window)  # what no step has written yet stays as it was
    expected = other.chunk([1], codes, [2], [True])
    rows = StepRows(
        torch.tensor([1], device=DEVICE),
        torch.tensor([2], device=DEVICE),
        torch.tensor([True], device=DEVICE),
        fused.seen,
    )
    fused.chunk([1], codes, [2], [True])
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        out = fused.decoder.decode(codes, rows, fused.conv, fused.window)
    graph.replay()
    assert torch.equal(out, expected)
    assert torch.equal(fused.window[1], other.window[1]) and fused.seen[1] == 2
