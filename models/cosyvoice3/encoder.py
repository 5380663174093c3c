"""What CosyVoice 3 takes from a reference clip: codes, a speaker vector and a mel prompt.

All of it is float32 whatever the other weights are: codes come from rounding, and a clip is
encoded once and then kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from voxserve.checkpoints import dummy_weights
from voxserve.errors import CheckpointError
from voxserve.models.cosyvoice3.onnx_file import Constant, read_onnx
from voxserve.models.cosyvoice3.speaker import SpeakerEncoder, SpeakerSizes
from voxserve.models.cosyvoice3.speech_tokenizer import SpeechTokenizer, SpeechTokenizerSizes
from voxserve.nn.blank import blank
from voxserve.nn.causal_conv import masked
from voxserve.nn.mel import KaldiFbank, LogMel, WhisperMel
from voxserve.nn.resample import Resample
from voxserve.plugin import Checkpoint

CLIP_HZ = 24_000
LISTEN_HZ = 16_000
MEL_FFT, MEL_HOP, MEL_BINS, MEL_HIGH_HZ = 1920, 480, 80, 12_000.0
SPEAKER_FILE = "campplus.onnx"
TOKENIZER_FILE = "speech_tokenizer_v3.onnx"
NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class ClipFeatures:
    """Features of B clips; everything behind a row's `count` is zero.

    codes: [B, F] int64 at 25 Hz. count: [B] int64, codes that the mel prompt reaches to as well.
    mel: [B, 2 F, bins] float32, log-mel frames at 50 Hz, two a code. speaker: [B, size] float32,
    of no particular length.
    """

    codes: Tensor
    count: Tensor
    mel: Tensor
    speaker: Tensor


class ClipEncoder(nn.Module):
    """See the module's docstring."""

    def __init__(self, tokenizer: SpeechTokenizerSizes, speaker: SpeakerSizes) -> None:
        super().__init__()
        self.tokenizer = SpeechTokenizer(tokenizer)
        self.speaker = SpeakerEncoder(speaker)
        self.resample = Resample(CLIP_HZ, LISTEN_HZ)
        self.whisper_mel = WhisperMel(tokenizer.mels)
        self.fbank = KaldiFbank(speaker.mels)
        self.prompt_mel = LogMel(CLIP_HZ, MEL_FFT, MEL_HOP, MEL_BINS, MEL_HIGH_HZ)

    def forward(self, audio: Tensor, lengths: Tensor) -> ClipFeatures:
        """audio [B, S] float32 at 24 kHz in [-1, 1], S whole 40 ms; lengths [B] int64 samples, at
        least 1440 each."""
        # Otherwise a GPU rounds the inputs of float32 convolutions to ten bits.
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return self._encode(masked(audio, lengths), lengths)

    def _encode(self, audio: Tensor, lengths: Tensor) -> ClipFeatures:
        heard, heard_lengths = self.resample(audio), self.resample.lengths(lengths)
        codes, held = self.tokenizer(*self.whisper_mel(heard, heard_lengths))
        vectors = self.speaker(*self.fbank(heard, heard_lengths))
        mel, frames = self.prompt_mel(audio, lengths)
        count = torch.minimum(held, frames // 2)
        return ClipFeatures(
            masked(codes, count), count, masked(mel, 2 * count).transpose(1, 2), vectors
        )


def load_clip_encoder(checkpoint: Checkpoint, device: str) -> ClipEncoder:
    """The encoder with its weights, some 1 GB as published, on `device`.

    Raises CheckpointError where the files are missing, damaged or of another kind.
    """
    if checkpoint.dummy or checkpoint.folder is None:
        with blank():
            encoder = ClipEncoder(SpeechTokenizerSizes(), SpeakerSizes())
        dummy_weights(encoder, device=device, dtype=torch.float32, moments=_moments)
        return encoder
    heard = read_onnx(checkpoint.folder / TOKENIZER_FILE)
    seen = read_onnx(checkpoint.folder / SPEAKER_FILE)
    with blank():
        encoder = ClipEncoder(
            SpeechTokenizerSizes.of({name: tensor.shape for name, tensor in heard.items()}),
            SpeakerSizes.of({name: tensor.shape for name, tensor in seen.items()}),
        )
    _fill(encoder.tokenizer, heard, checkpoint.folder / TOKENIZER_FILE, device)
    _fill(encoder.speaker, seen, checkpoint.folder / SPEAKER_FILE, device)
    return encoder.requires_grad_(False).eval().to(device)


def _fill(module: nn.Module, found: Mapping[str, Constant], path: Path, device: str) -> None:
    """Give a module made on the meta device the tensors of its file."""
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    wrong = [
        f"{name} {list(found[name].shape) if name in found else 'is missing'} for {list(shape)}"
        for name, shape in wanted.items()
        if name not in found or found[name].shape != shape
    ]
    if wrong:
        more = f" and {len(wrong) - NAMES_SHOWN} more" if len(wrong) > NAMES_SHOWN else ""
        raise CheckpointError(f"tensors of {path}: {', '.join(wrong[:NAMES_SHOWN])}{more}")
    tensors = {name: found[name].read().to(device) for name in wanted}
    module.load_state_dict(tensors, assign=True)


def _moments(name: str, shape: tuple[int, ...]) -> tuple[float, float] | None:
    return (1.0, 0.0) if name.endswith("running_var") else None
