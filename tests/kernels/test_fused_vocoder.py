"""The vocoder on fused kernels equals the plain one, over chunks and slots."""

import pytest
import torch
from torch import Tensor

from tests.kernels.rig import DEVICE, DTYPE, GPU
from voxserve.kernels.tiles import on_sms
from voxserve.models.cosyvoice3.codec_weights import load_vocoder
from voxserve.models.cosyvoice3.config import VocoderConfig
from voxserve.models.cosyvoice3.state import emitted_samples, vocoder_state
from voxserve.models.cosyvoice3.vocoder import Vocoder

SMALL = VocoderConfig(
    base=128,
    f0_channels=16,
    rates=(8, 5, 3) if GPU else (2, 2, 2),
    kernels=(16, 11, 7) if GPU else (4, 4, 4),
    res_dilations=((1, 3, 5),) * 3 if GPU else ((1,), (1, 3), (1,)),
    source_dilations=((1, 3, 5),) * 3 if GPU else ((1,), (1, 3), (1,)),
)
SLOTS, WIDTH = 3, 11
CHUNKS = [(0, (11, 10), (False, False)), (1, (4, 11), (False, True)), (2, (2,), (True,))]
"""(number, new frames of each row, whether it is the last one); the second row ends first."""


def speak(vocoder: Vocoder) -> list[Tensor]:
    """The sound of two rows in slots 2 and 0, beside a padding row; then the frame counts."""
    state = {
        tensor.name: torch.full(
            (SLOTS + 1, *tensor.shape),
            3,
            device=DEVICE,
            dtype=DTYPE if tensor.dtype == "model" else getattr(torch, tensor.dtype),
        )
        for tensor in vocoder_state(SMALL)
    }
    generator, sounds, place = torch.Generator().manual_seed(0), [], [0, 0]
    for number, counts, last in CHUNKS:
        mel = torch.randn(len(counts) + 1, WIDTH, 80, generator=generator) * 2
        with torch.inference_mode():
            audio = vocoder.run(
                mel.to(DEVICE),
                torch.tensor([*counts, 0], device=DEVICE),
                torch.tensor([number == 0] * len(counts) + [False], device=DEVICE),
                torch.tensor([*last, False], device=DEVICE),
                torch.tensor([*(2, 0)[: len(counts)], SLOTS], device=DEVICE),
                state,
            )
        for row, (count, end) in enumerate(zip(counts, last, strict=True)):
            samples = emitted_samples(SMALL, place[row], count, end)
            sounds.append(audio[row, :samples].clone())
            place[row] += count
    return [*sounds, state["vocoder.frame"][[0, 2]].float()]


@pytest.mark.timeout(600)
def test_equals_the_plain_vocoder() -> None:
    """In the interpreter in float32 with fewer columns a frame; on a GPU in bfloat16, where the two
    round apart."""
    with on_sms(2):
        got = speak(load_vocoder(None, SMALL, DEVICE, DTYPE, fused=True))
    expected = speak(load_vocoder(None, SMALL, DEVICE, DTYPE))
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape and one.isfinite().all() and other.norm() > 0
        assert (one - other).norm() / other.norm() < (0.05 if GPU else 1e-5)
