"""From flow.pt and hift.pt, or random numbers of the same shapes, to the modules."""

from pathlib import Path

import torch

from voxserve.checkpoints import dummy_weights, load_weights
from voxserve.models.cosyvoice3.config import FlowConfig, VocoderConfig
from voxserve.models.cosyvoice3.dit import frequencies
from voxserve.models.cosyvoice3.flow import Flow
from voxserve.models.cosyvoice3.vocoder import Vocoder
from voxserve.nn.blank import blank

DUMMY_F0_HZ = 120.0
_TRAINING_NAME = "generator."
"""The vocoder was saved as a part of what trained it."""


def load_flow(
    folder: Path | None,
    config: FlowConfig,
    device: str,
    dtype: torch.dtype,
    *,
    fused: bool = False,
) -> Flow:
    """The flow of a checkpoint's folder, or of random weights, ready to run.

    The tables of the solver's times are made from the float32 weights. Noise and rotary
    frequencies stay float32. fused: run on the kernels for CUDA. Raises CheckpointError on
    missing, unexpected or misshapen tensors.
    """
    with blank():
        flow = Flow(config)
    if folder is None:
        dummy_weights(flow, device=device, dtype=torch.float32)
        flow.decoder.estimator.rotary_embed.inv_freq = frequencies(config.head).to(device)
    else:
        load_weights(flow, folder / "flow.pt", device=device, dtype=torch.float32)
    flow.finish()
    rotary = flow.decoder.estimator.rotary_embed
    noise, rates = flow.noise, rotary.inv_freq
    flow.to(dtype)
    flow.noise, rotary.inv_freq = noise, rates
    if fused:
        from voxserve.models.cosyvoice3.fused_flow import fuse

        fuse(flow)
    return flow


def load_vocoder(
    folder: Path | None,
    config: VocoderConfig,
    device: str,
    dtype: torch.dtype,
    *,
    fused: bool = False,
) -> Vocoder:
    """As `load_flow`, for hift.pt. The F0 predictor is float64 whatever `dtype`."""
    with blank():
        vocoder = Vocoder(config)
    if folder is None:
        dummy_weights(vocoder, device=device, dtype=torch.float32, moments=_moments)
    else:
        load_weights(
            vocoder,
            folder / "hift.pt",
            device=device,
            dtype=torch.float32,
            rename=lambda name: name.replace(_TRAINING_NAME, ""),
        )
    vocoder.m_source.hear()
    noise = vocoder.m_source.noise
    vocoder.finish()
    for name, module in vocoder.named_children():
        if name != "f0_predictor":
            module.to(dtype)
    wide = torch.promote_types(dtype, torch.float32)
    vocoder.spectrum.finish(torch.empty(0, dtype=wide, device=device))
    vocoder.m_source.noise = noise
    if fused:
        from voxserve.models.cosyvoice3.fused_vocoder import fuse as fuse_vocoder

        fuse_vocoder(vocoder)
    return vocoder


def _moments(name: str, shape: tuple[int, ...]) -> tuple[float, float] | None:
    """Weight norms and Snakes as large as trained ones, and an F0 that is voiced."""
    if name.endswith("original0"):
        return 0.7, 0.1
    if name.endswith("alpha"):
        return 1.0, 0.0
    return (DUMMY_F0_HZ, 0.0) if name == "f0_predictor.classifier.bias" else None
