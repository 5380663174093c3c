"""The toy's entry: what voxserve finds, without loading anything else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxserve.plugin import Checkpoint, HostLogic, Plugin, SpeechModel, Target


def _host(checkpoint: Checkpoint) -> HostLogic:
    from tests.toy.host import ToyHost

    return ToyHost()


def _load(checkpoint: Checkpoint, target: Target) -> SpeechModel:
    from tests.toy.device import ToyModel

    return ToyModel()


def _recognises(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") == "toy"


plugin = Plugin(
    host=_host,
    load=_load,
    recognises=_recognises,
    bundled=Path(__file__).parent,
    bundled_dummy=True,
)
