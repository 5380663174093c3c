"""From a checkpoint's files, or random numbers of the same shapes, to the modules."""

import re

import torch
from torch import nn

from voxserve.checkpoints import dummy_weights, load_weights
from voxserve.models.qwen3_tts.codec import Decoder
from voxserve.models.qwen3_tts.config import Qwen3Config
from voxserve.models.qwen3_tts.encoder import Encoder
from voxserve.models.qwen3_tts.lm import TalkerModel
from voxserve.models.qwen3_tts.speaker import SpeakerEncoder
from voxserve.plugin import Checkpoint

_UNUSED = re.compile(
    r"decoder\.quantizer\.rvq_\w+\.input_proj\."  # the decoder's quantizer never encodes,
    r"|encoder\.quantizer\.\w+\.output_proj\."  # the encoder's never decodes,
    r"|encoder\..*\.codebook\.initialized$"  # and this only mattered in training
)
_ACOUSTIC = re.compile(r"encoder\.quantizer\.acoustic_\w+\.layers\.(\d+)\.")


class LanguageModel(nn.Module):
    """model.safetensors."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.talker = TalkerModel(config.talker)
        self.speaker_encoder = None if config.speaker is None else SpeakerEncoder(config.speaker)


class Codec(nn.Module):
    """speech_tokenizer/model.safetensors; the encoder only where the model clones voices."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.decoder = Decoder(config.decoder)
        books = config.decoder.codebooks
        self.encoder = Encoder(config.encoder, books) if config.clones else None

    def finish(self) -> None:
        self.decoder.finish()
        if self.encoder is not None:
            self.encoder.finish()


def load_language_model(
    checkpoint: Checkpoint,
    config: Qwen3Config,
    device: str,
    dtype: torch.dtype,
    *,
    finish: bool = True,
) -> LanguageModel:
    """finish: make it ready to run; without, it holds the published tensors as they are.

    Raises CheckpointError on missing, unexpected or misshapen tensors.
    """
    with torch.device("meta"):
        module = LanguageModel(config)
    if checkpoint.dummy or checkpoint.folder is None:
        dummy_weights(module, device=device, dtype=dtype, moments=_moments)
    else:
        load_weights(module, checkpoint.folder, device=device, dtype=dtype)
    if finish:
        module.talker.finish()
    return module


def load_codec(
    checkpoint: Checkpoint,
    config: Qwen3Config,
    device: str,
    dtype: torch.dtype,
    *,
    finish: bool = True,
) -> Codec:
    """As `load_language_model`."""
    kept = config.decoder.codebooks - config.encoder.semantic_books

    def rename(name: str) -> str | None:
        book = _ACOUSTIC.match(name)
        if _UNUSED.match(name) or (book and int(book[1]) >= kept):
            return None
        return None if name.startswith("encoder.") and not config.clones else name

    with torch.device("meta"):
        module = Codec(config)
    if checkpoint.dummy or checkpoint.folder is None:
        dummy_weights(module, device=device, dtype=dtype, moments=_moments)
    else:
        path = checkpoint.folder / "speech_tokenizer"
        load_weights(module, path, device=device, dtype=dtype, rename=rename)
    if finish:
        module.finish()
    return module


def _moments(name: str, shape: tuple[int, ...]) -> tuple[float, float] | None:
    """Random embeddings as large as trained ones, counts of one, and small residual scales."""
    last = name.rsplit(".", 1)[-1]
    if "embedding" in name or last == "embed_sum":
        return 0.0, 1.0
    if last == "cluster_usage":
        return 1.0, 0.0
    if last in ("scale", "gamma"):
        return 0.1, 0.0
    return None
