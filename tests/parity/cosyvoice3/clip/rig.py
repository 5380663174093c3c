"""The clip encoder with the small weights of the goldens."""

import lzma
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.models.cosyvoice3.clip_checkpoint import write_onnx
from tests.parity.qwen3_tts.checkpoint import speech_like
from voxserve.models.cosyvoice3.encoder import ClipEncoder, load_clip_encoder
from voxserve.nn.causal_conv import masked
from voxserve.plugin import Checkpoint

HERE = Path(__file__).parent
GOLDENS: dict[str, Tensor] = load_file(HERE / "goldens.safetensors")
CLIPS_S = (1.07, 2.0, 7.03)
GAINS = (1.0, 0.125, 0.5)
"""A quiet clip shows whether loudness is measured within each clip."""


@cache
def folder() -> Path:
    """Both files: the tokenizer's made, the speaker encoder's as torch's exporter wrote it."""
    made = Path(mkdtemp(prefix="cosyvoice3-clip-"))
    write_onnx(made)
    exported = lzma.decompress((HERE / "campplus.onnx.xz").read_bytes())
    (made / "campplus.onnx").write_bytes(exported)
    return made


@cache
def encoder() -> ClipEncoder:
    torch.set_num_threads(1)
    return load_clip_encoder(Checkpoint("clip", folder(), {}), "cpu")


@cache
def clip(seconds: float) -> Tensor:
    """[T] at 24 kHz."""
    return torch.from_numpy(speech_like(seconds)) * GAINS[CLIPS_S.index(seconds)]


@cache
def batch() -> tuple[Tensor, Tensor]:
    """All clips, with rubbish behind the end of each, as a slot that was used before has it."""
    noise = torch.Generator().manual_seed(4)
    audio = torch.rand(len(CLIPS_S), 8 * 24000, generator=noise) - 0.5
    for row, seconds in enumerate(CLIPS_S):
        audio[row, : len(clip(seconds))] = clip(seconds)
    return audio, torch.tensor([len(clip(seconds)) for seconds in CLIPS_S])


def heard() -> tuple[Tensor, Tensor]:
    """The batch as the tokenizer and the speaker encoder hear it, at 16 kHz."""
    audio, lengths = batch()
    resample = encoder().resample
    return resample(masked(audio, lengths)), resample.lengths(lengths)
