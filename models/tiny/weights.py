"""Make the modules of tiny and fill them: random weights from a fixed seed, or a checkpoint's."""

import math

import torch

from voxserve.checkpoints import dummy_weights, load_weights
from voxserve.errors import CheckpointError
from voxserve.models.tiny.config import TinyConfig
from voxserve.models.tiny.stages import TinyModel
from voxserve.nn.blank import blank
from voxserve.plugin import Checkpoint


def load(checkpoint: Checkpoint, device: str, dtype: str) -> TinyModel:
    """Raises CheckpointError when the configuration or a tensor does not fit."""
    config = TinyConfig.read(checkpoint.config)
    with blank():
        model = TinyModel(config)
    kind: torch.dtype = getattr(torch, dtype)
    if checkpoint.dummy:
        dummy_weights(model, device=device, dtype=kind, seed=config.seed, moments=_moments)
    elif checkpoint.folder is None:
        raise CheckpointError(f"checkpoint {checkpoint.name} has no folder and is not dummy")
    else:
        load_weights(model, checkpoint.folder, device=device, dtype=kind)
    return model


def _moments(name: str, shape: tuple[int, ...]) -> tuple[float, float] | None:
    """Random weights that give lively codes and audio of moderate loudness."""
    inputs = math.prod(shape[1:])
    match name.split("."):
        case ["lm", "text" | "first", "weight"] | ["lm", "depth", "books"]:
            return 0.0, 1.0
        case ["lm", "output", "weight"]:
            return 0.0, 2.0 * inputs**-0.5
        case ["lm", "depth", "outputs"]:
            return 0.0, 2.0 * shape[-1] ** -0.5
        case ["codec_net", "books"]:
            return 0.0, 0.5
        case [*_, "alpha" | "beta"]:
            return 0.0, 0.3
        case [*_, "scale"]:
            return 0.5, 0.1
        case [*_, "point", "weight"]:
            return 0.0, 0.5 * inputs**-0.5
        case ["codec_net", "leave", "conv", "weight"]:
            return 0.0, 0.2 * inputs**-0.5
    return None
