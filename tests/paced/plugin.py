"""A model that does nothing but take its time: load and overload at the pace of a real one.

Each character of the text is a frame of 80 ms. A step takes the same time however many rows it has,
so that every stream is made as fast on any machine.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.paced.pace import STEP, STEP_S
from voxserve.plugin import Checkpoint, HostLogic, Plugin, SpeechModel, Target


def _host(checkpoint: Checkpoint) -> HostLogic:
    from tests.paced.host import PacedHost

    return PacedHost()


def _load(checkpoint: Checkpoint, target: Target) -> SpeechModel:
    from tests.paced.device import PacedModel

    return PacedModel()


def _recognises(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") == "paced"


plugin = Plugin(
    host=_host,
    load=_load,
    recognises=_recognises,
    bundled=Path(__file__).parent,
    bundled_dummy=True,
)


def path_with_paced(folder: Path, step_s: float = STEP_S) -> dict[str, str]:
    """The environment in which the model counts as installed. folder: where its metadata goes."""
    metadata = folder / "paced-1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: paced\nVersion: 1.0\n")
    lines = ("[voxserve.models]", "paced = tests.paced.plugin:plugin")
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    return {"PYTHONPATH": path, STEP: str(step_s)}
