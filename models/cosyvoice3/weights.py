"""From a checkpoint's files, or random numbers of the same shapes, to the modules."""

from pathlib import Path

import torch

from voxserve.checkpoints import dummy_weights, load_weights
from voxserve.models.cosyvoice3.codec_weights import load_flow, load_vocoder
from voxserve.models.cosyvoice3.config import CosyVoiceConfig, LmConfig
from voxserve.models.cosyvoice3.encoder import load_clip_encoder
from voxserve.models.cosyvoice3.lm import LanguageModel
from voxserve.models.cosyvoice3.stages import CosyVoiceModel
from voxserve.nn.blank import blank
from voxserve.plugin import Checkpoint, Target

LM_FILE = "llm.pt"
_QWEN = "llm.model.model."


def load(checkpoint: Checkpoint, target: Target) -> CosyVoiceModel:
    """The whole model on the target's device. Raises CheckpointError where its files do not fit."""
    config = CosyVoiceConfig.read(checkpoint)
    device, dtype = target.device, getattr(torch, target.dtype)
    folder = None if checkpoint.dummy else checkpoint.folder
    lm, fused = load_lm(folder, config.lm, device, dtype), None
    if target.lm_kernels == "fused":
        from voxserve.models.cosyvoice3.fused_lm import FusedLm

        fused = FusedLm(lm, config.lm, config.repetition)
    return CosyVoiceModel(
        config,
        lm,
        load_flow(folder, config.flow, device, dtype, fused=target.codec_kernels == "fused"),
        load_vocoder(folder, config.vocoder, device, dtype, fused=target.codec_kernels == "fused"),
        load_clip_encoder(checkpoint, device),
        fused=fused,
    )


def load_lm(
    folder: Path | None, config: LmConfig, device: str, dtype: torch.dtype
) -> LanguageModel:
    """folder: None for random weights. Raises CheckpointError."""
    with blank():
        module = LanguageModel(config)
    if folder is None:
        dummy_weights(module, device=device, dtype=dtype, moments=_moments)
    else:
        load_weights(module, folder / LM_FILE, device=device, dtype=dtype, rename=lm_name)
    return module.requires_grad_(False).eval()


def lm_name(published: str) -> str | None:
    """The module's name of a tensor of llm.pt; None for the head over text, which nobody asks."""
    if published == "llm.model.lm_head.weight":
        return None
    if published == f"{_QWEN}embed_tokens.weight":
        return "text_embedding.weight"
    return published.replace(_QWEN, "model.", 1)


def _moments(name: str, shape: tuple[int, ...]) -> tuple[float, float] | None:
    """Random embeddings as large as trained ones."""
    return (0.0, 1.0) if "embedding" in name else None
