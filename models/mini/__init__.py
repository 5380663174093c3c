"""The embedded voice: a small Speech Language Model of our own whose weights come with the package.

English, one voice, 24 kHz. A text encoder lays phonemes out over frames of 50 ms, a causal
transformer says each frame as six codes, and a causal codec turns them into sound. How it was
trained is in `training/voice`; what it can and cannot do is in `checkpoint/MODEL_CARD.md`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxserve.plugin import Checkpoint, HostLogic, Plugin, SpeechModel, Target

MODEL_TYPE = "voxserve_mini"


def _host(checkpoint: Checkpoint) -> HostLogic:
    from voxserve.models.mini.host import MiniHost

    return MiniHost(checkpoint)


def _load(checkpoint: Checkpoint, target: Target) -> SpeechModel:
    from voxserve.models.mini.weights import load

    return load(checkpoint, target.device, target.dtype)


def _recognises(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") == MODEL_TYPE


plugin = Plugin(
    host=_host,
    load=_load,
    recognises=_recognises,
    bundled=Path(__file__).with_name("checkpoint"),
)
