"""A very small model with random weights: what tests and a first `voxserve serve` run on.

It has the shape of Qwen3-TTS in everything that the server has to cope with (text fed one token a
step, several codebooks with a depth transformer, a causal codec with attention and convolutions
that remember), but speaks noise. Nothing here is tuned for anything but being quick on a CPU.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxserve.plugin import Checkpoint, HostLogic, Plugin, SpeechModel, Target

MODEL_TYPE = "voxserve_tiny"


def _host(checkpoint: Checkpoint) -> HostLogic:
    from voxserve.models.tiny.host import TinyHost

    return TinyHost(checkpoint)


def _load(checkpoint: Checkpoint, target: Target) -> SpeechModel:
    from voxserve.models.tiny.weights import load

    return load(checkpoint, target.device, target.dtype)


def _recognises(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") == MODEL_TYPE


plugin = Plugin(
    host=_host,
    load=_load,
    recognises=_recognises,
    bundled=Path(__file__).with_name("checkpoint"),
    bundled_dummy=True,
)
