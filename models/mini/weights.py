"""Make the modules of mini and fill them from 8-bit files, or with random weights."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from voxserve.checkpoints import dummy_weights
from voxserve.errors import CheckpointError
from voxserve.models.mini.config import MiniConfig
from voxserve.models.mini.stages import MiniModel
from voxserve.nn.blank import blank
from voxserve.plugin import Checkpoint

FILES = {"lm": "lm.safetensors", "codec_net": "codec.safetensors"}


def load(checkpoint: Checkpoint, device: str, dtype: str) -> MiniModel:
    """Raises CheckpointError when the configuration or a tensor does not fit."""
    config = MiniConfig.read(checkpoint.config)
    with blank():
        model = MiniModel(config)
    kind: torch.dtype = getattr(torch, dtype)
    if checkpoint.dummy:
        dummy_weights(model, device=device, dtype=kind)
        return model
    if checkpoint.folder is None:
        raise CheckpointError(f"checkpoint {checkpoint.name} has no folder and is not dummy")
    tensors = {
        f"{part}.{name}": tensor.to(device, kind)
        for part, file in FILES.items()
        for name, tensor in read_bytes(checkpoint.folder / file).items()
    }
    try:
        model.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as error:
        raise CheckpointError(f"tensors of {checkpoint.folder}: {error}") from error
    model.requires_grad_(False)
    model.eval()
    return model.to(device)


def read_bytes(file: Path) -> dict[str, Tensor]:
    """Tensors in float32; NAME is int8 with a scale a row where the file holds NAME.scale.

    Raises CheckpointError when the file is absent or damaged.
    """
    try:
        held = load_file(file)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    out = {}
    for name, tensor in held.items():
        scale = held.get(f"{name}.scale")
        if scale is not None:
            rows = scale.float().view(-1, *([1] * (tensor.dim() - 1)))
            out[name] = tensor.float() * rows
        elif not (name.endswith(".scale") and name.removesuffix(".scale") in held):
            out[name] = tensor.float()
    return out
